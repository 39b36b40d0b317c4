#include "survey/network_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "survey/networks.h"

namespace nlsplit {
namespace {

using ::nlsplit::testing::measured;
using ::nlsplit::testing::TrueWire;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;

void expect_near(const std::vector<Wire>& wires, const std::vector<TrueWire>& truth, double off) {
  ASSERT_EQ(wires.size(), truth.size());
  for (size_t i = 0; i < wires.size(); ++i) {
    EXPECT_NEAR(wires[i].latency.value() / truth[i].latency_s, 1, off) << i;
    EXPECT_NEAR(wires[i].bandwidth.value() * 8 / 1e9 / truth[i].gbps, 1, off) << i;
  }
}

TEST(NetworkShape, FindsTheLinksOfUnequalHosts) {
  const std::vector<TrueWire> truth = {{500e-6, 1}, {1e-3, 1}, {1e-3, 0.5}, {2e-3, 0.2}};
  const NetworkShape shape = network_shape(4, measured(truth));
  ASSERT_EQ(shape.kind, NetworkShape::Kind::one_switch);
  expect_near(shape.wires, truth, 1e-3);
  EXPECT_LT(shape.latency_error, 1e-3);
  EXPECT_EQ(shape.kinds, 4u);
  const NetworkShape noisy = network_shape(4, measured(truth, {}, 0.02));
  ASSERT_EQ(noisy.kind, NetworkShape::Kind::one_switch);
  expect_near(noisy.wires, truth, 0.05);
}

TEST(NetworkShape, AlikeHostsAreOneKind) {
  std::vector<TrueWire> truth(24, {50e-6, 10});
  for (size_t i = 16; i < 24; ++i) truth[i] = {200e-6, 1};
  const NetworkShape shape = network_shape(24, measured(truth, {}, 0.01));
  ASSERT_EQ(shape.kind, NetworkShape::Kind::one_switch);
  EXPECT_EQ(shape.kinds, 2u);
  expect_near(shape.wires, truth, 0.05);
}

TEST(NetworkShape, FindsRacks) {
  std::vector<TrueWire> hosts;
  for (size_t i = 0; i < 12; ++i) hosts.push_back({20e-6, 10, i / 4});
  const std::vector<TrueWire> racks(3, {100e-6, 4});
  const NetworkShape shape = network_shape(12, measured(hosts, racks, 0.02));
  ASSERT_EQ(shape.kind, NetworkShape::Kind::racks);
  EXPECT_THAT(shape.rack_of, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  expect_near(shape.wires, hosts, 0.05);
  expect_near(shape.uplinks, racks, 0.05);
}

// Equal latencies: only large messages tell.
TEST(NetworkShape, FindsRacksByBandwidth) {
  std::vector<TrueWire> hosts;
  for (size_t i = 0; i < 8; ++i) hosts.push_back({20e-6, 10, i % 2});
  const NetworkShape shape = network_shape(8, measured(hosts, {{0, 1}, {0, 1}}));
  ASSERT_EQ(shape.kind, NetworkShape::Kind::racks);
  EXPECT_THAT(shape.rack_of, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_NEAR(shape.uplinks[0].bandwidth.value(), 1e9 / 8, 1e6);
}

TEST(NetworkShape, WhatNoSwitchExplainsIsALinkForEachPath) {
  std::vector<Path> paths = measured(std::vector<TrueWire>(4, {1e-3, 1}));
  for (size_t i = 0; i < paths.size(); ++i) {
    paths[i].latency = seconds(1e-3 * static_cast<double>(1 + (i * i) % 7));
    paths[i].bandwidth = paths[i].back = bytes_per_second(1e7 * static_cast<double>(1 + (i * 5) % 6));
  }
  const NetworkShape shape = network_shape(4, paths);
  ASSERT_EQ(shape.kind, NetworkShape::Kind::paths);
  ASSERT_EQ(shape.wires.size(), paths.size());
  for (size_t i = 0; i < paths.size(); ++i) EXPECT_EQ(shape.wires[i].bandwidth, paths[i].bandwidth);
}

// A ring's latencies have no switch. Of 12 hosts not all pairs are measured, so the answer is no link for each pair.
TEST(NetworkShape, OfManyHostsSaysThatNothingExplainsThem) {
  std::vector<Path> paths = measured(std::vector<TrueWire>(12, {1e-3, 1}));
  for (size_t i = 0; i < paths.size(); ++i) paths[i].latency = seconds(1e-4 * static_cast<double>(1 + (i * i) % 23));
  const NetworkShape shape = network_shape(12, paths);
  EXPECT_NE(shape.kind, NetworkShape::Kind::paths);
  EXPECT_FALSE(explains(shape)) << shape.latency_error;
  EXPECT_TRUE(explains(network_shape(12, measured(std::vector<TrueWire>(12, {1e-3, 1})))));
}

TEST(NetworkShape, OfTwoHostsIsOneLinkAndOfOneNone) {
  const NetworkShape shape = network_shape(2, measured({{1e-3, 1}, {1e-3, 1}}));
  ASSERT_EQ(shape.kind, NetworkShape::Kind::paths);
  EXPECT_NEAR(shape.wires.at(0).latency.value(), 2e-3, 1e-9);
  EXPECT_EQ(network_shape(1, {}).kind, NetworkShape::Kind::none);
}

TEST(NetworkShape, TellsHalfDuplexLinks) {
  const NetworkShape one = network_shape(3, measured({{1e-3, 1}, {1e-3, 1}, {1e-3, 0.1, 0, true}}));
  ASSERT_EQ(one.wires.size(), 3u);
  EXPECT_FALSE(one.wires[0].half_duplex);
  EXPECT_FALSE(one.wires[1].half_duplex);
  EXPECT_TRUE(one.wires[2].half_duplex);
  const NetworkShape all = network_shape(4, measured(std::vector<TrueWire>(4, {1e-3, 1, 0, true})));
  EXPECT_THAT(all.wires, Each(Field(&Wire::half_duplex, true)));
}

// Few paths of many hosts: the latencies of the wires are still told apart.
TEST(NetworkShape, OfManyHostsNeedsFewPaths) {
  std::vector<TrueWire> truth;
  for (size_t i = 0; i < 60; ++i) truth.push_back({50e-6 * static_cast<double>(1 + i % 3), 1});
  const std::vector<Path> paths = measured(truth);
  EXPECT_LT(paths.size(), 60u * 7);
  const NetworkShape shape = network_shape(60, paths);
  ASSERT_EQ(shape.kind, NetworkShape::Kind::one_switch);
  expect_near(shape.wires, truth, 0.01);
}

}  // namespace
}  // namespace nlsplit
