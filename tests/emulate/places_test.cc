#include "emulate/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Device on(const char* name, size_t host) {
  Device device;
  device.name = name;
  device.host = HostId(host);
  return device;
}

Link between(size_t a, size_t b, double rate, double latency, bool full = true) {
  return {"", HostId(a), HostId(b), bytes_per_second(rate), seconds(latency), full};
}

// A and B on a, C on b; sw between them; the link of b is half duplex.
Cluster small_cluster() {
  Cluster cluster;
  cluster.hosts = {{"sw", true}, {"a", false}, {"b", false}};
  cluster.devices = {on("A", 1), on("B", 1), on("C", 2)};
  cluster.links = {between(1, 0, 100, 1e-3), between(2, 0, 50, 2e-3, false), between(1, 1, 1000, 1e-6)};
  return cluster;
}

TEST(Places, EachDeviceHasOne) {
  const Cluster cluster = small_cluster();
  const auto network = emulated_network(cluster);
  ASSERT_TRUE(network.ok()) << network.error().to_string();
  ASSERT_EQ(network->places.size(), 3u);
  EXPECT_EQ(network->places[0].name, "a.1");
  EXPECT_EQ(network->places[1].name, "a.2");
  EXPECT_EQ(network->places[2].name, "b");
  // Directions of a full-duplex link are two, those of a half-duplex one are one; a host's own link has one.
  EXPECT_THAT(network->route(0, 2).links, ElementsAre(0, 2));
  EXPECT_THAT(network->route(2, 0).links, ElementsAre(2, 1));
  EXPECT_THAT(network->route(0, 1).links, ElementsAre(4));
  EXPECT_THAT(network->route(1, 0).links, ElementsAre(4));
  EXPECT_DOUBLE_EQ(network->route(0, 2).latency, 3e-3);
  EXPECT_DOUBLE_EQ(network->rates[2], 50);
  EXPECT_DOUBLE_EQ(most_in_flight(*network), 50 * 2 * 3e-3);
}

TEST(Places, RanksGoToTheirHosts) {
  const Cluster cluster = small_cluster();
  const EmulatedNetwork network = *emulated_network(cluster);
  EXPECT_THAT(*places_of(cluster, network, {"b", "a", "a"}, false), ElementsAre(2, 0, 1));
  EXPECT_THAT(*places_of(cluster, network, {"a.2", "a", "b", "b"}, true), ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(places_of(cluster, network, {"b", "b"}, false).error().message, HasSubstr("more ranks on host 'b'"));
  EXPECT_THAT(places_of(cluster, network, {"c"}, true).error().message, HasSubstr("no host 'c' in the scenario"));
}

TEST(Places, ACutHasBothDirections) {
  const Cluster cluster = small_cluster();
  const auto cut = parse_cut(cluster, "sw,b@1.5s");
  ASSERT_TRUE(cut.ok()) << cut.error().to_string();
  EXPECT_THAT(cut->links, ElementsAre(2, 3));  // of the second link
  EXPECT_DOUBLE_EQ(cut->after_s, 1.5);
  EXPECT_EQ(parse_cut(cluster, "b,sw@0s")->links, cut->links);
  EXPECT_THAT(parse_cut(cluster, "a>sw@1s")->links, ElementsAre(0));  // one direction
  EXPECT_THAT(parse_cut(cluster, "sw>a@1s")->links, ElementsAre(1));
  EXPECT_THAT(parse_cut(cluster, "sw>b@1s").error().message, HasSubstr("its directions are one"));
  for (const char* wrong :
       {"", "a", "a,sw", "@1s", "a,sw@", "a,sw@-1s", "a,sw@1", "sw@1s,a", "a,b@1s", "a,c@1s", ",@1s"})
    EXPECT_FALSE(parse_cut(cluster, wrong).ok()) << wrong;
}

TEST(Places, WhatCannotBeEmulatedIsRefused) {
  Cluster window = small_cluster();
  window.nic_window = 1;
  EXPECT_THAT(emulated_network(window).error().message, HasSubstr("nic_window: 1 cannot be emulated"));
  for (const char* name : {"localhost", "10.0", "-x"}) {
    Cluster cluster = small_cluster();
    cluster.hosts[2].name = name;
    EXPECT_THAT(emulated_network(cluster).error().message, HasSubstr("cannot be emulated")) << name;
  }
  Cluster clash = small_cluster();
  clash.hosts[2].name = "a.1";
  EXPECT_THAT(emulated_network(clash).error().message, HasSubstr("there is a host 'a.1' already"));
}

}  // namespace
}  // namespace nlsplit
