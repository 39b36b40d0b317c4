#include "emulate/kernel_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulate/places.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Link between(size_t a, size_t b, bool full = true) {
  return {"", HostId(a), HostId(b), bytes_per_second(100), seconds(1e-3), full};
}

Device on(size_t host) {
  Device device;
  device.name = "device";
  device.host = HostId(host);
  return device;
}

// a and b at one switch, c at another, and a cable between the switches.
Cluster two_racks() {
  Cluster cluster;
  cluster.hosts = {{"left", true}, {"right", true}, {"a", false}, {"b", false}, {"c", false}};
  cluster.devices = {on(2), on(3), on(4)};
  cluster.links = {between(2, 0), between(0, 3), between(0, 1), between(1, 4)};
  return cluster;
}

Result<KernelLinks> links_of(const Cluster& cluster) {
  ASSIGN_OR_RETURN(const EmulatedNetwork network, emulated_network(cluster));
  return kernel_links(cluster, network);
}

// The wire over which packets for the place leave the node.
std::string way(const KernelLinks& links, const std::string& node, size_t to) {
  for (const KernelLinks::Way& way : links.ways) {
    if (links.nodes[way.node] != node || way.to != to) continue;
    return links.nodes[links.wires[way.wire].a] + "-" + links.nodes[links.wires[way.wire].b];
  }
  return "none";
}

TEST(KernelLinks, SwitchesForwardToTheNextOne) {
  const auto links = links_of(two_racks());
  ASSERT_TRUE(links.ok()) << links.error().to_string();
  EXPECT_THAT(links->nodes, ElementsAre("a", "b", "c", "left", "right"));
  EXPECT_EQ(links->places, 3u);
  EXPECT_EQ(links->wires.size(), 4u);
  for (const KernelLinks::Wire& wire : links->wires) EXPECT_DOUBLE_EQ(wire.rate, 100);
  EXPECT_EQ(links->ways.size(), 6u);
  EXPECT_EQ(way(*links, "left", 0), "a-left");
  EXPECT_EQ(way(*links, "left", 1), "left-b");
  EXPECT_EQ(way(*links, "left", 2), "left-right");
  EXPECT_EQ(way(*links, "right", 0), "left-right");
  EXPECT_EQ(way(*links, "right", 2), "right-c");
}

TEST(KernelLinks, RefusesWhatTokenBucketsCannot) {
  const auto refused = [](const Cluster& cluster) {
    const auto links = links_of(cluster);
    return links.ok() ? "" : links.error().message;
  };
  Cluster half = two_racks();
  half.links[0].full_duplex = false;
  EXPECT_THAT(refused(half), HasSubstr("the link between a and left is half duplex"));
  Cluster shared = two_racks();
  shared.devices.push_back(on(2));
  shared.links.push_back(between(2, 2));
  EXPECT_THAT(refused(shared), HasSubstr("host 'a' has several devices"));
  Cluster chain = two_racks();  // c behind b
  chain.links.back() = between(3, 4);
  EXPECT_THAT(refused(chain), HasSubstr("host 'b' "));
  Cluster triangle = two_racks();  // a and b directly, too
  triangle.links.push_back(between(2, 3));
  EXPECT_THAT(refused(triangle), HasSubstr("has several links"));
}

}  // namespace
}  // namespace nlsplit
