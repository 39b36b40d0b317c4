#include "cost/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;

HostId host(size_t i) { return HostId(i); }

Link link(size_t a, size_t b, double megabytes_per_second, double microseconds) {
  return {"", HostId(a), HostId(b), bytes_per_second(megabytes_per_second * 1e6), seconds(microseconds * 1e-6), true};
}

Cluster cluster_of(std::vector<std::string> hosts, std::vector<Link> links) {
  Cluster cluster;
  for (std::string& name : hosts) cluster.hosts.push_back({std::move(name), false});
  cluster.links = std::move(links);
  return cluster;
}

std::vector<size_t> links_of(const Route& route) {
  std::vector<size_t> links;
  for (const Hop& hop : route.hops) links.push_back(hop.link.index());
  return links;
}

TEST(Route, CrossesASwitchInTheRightDirections) {
  const Cluster cluster = cluster_of({"a", "b", "sw"}, {link(0, 2, 125, 50), link(1, 2, 12.5, 70)});
  const Route route = find_route(cluster, host(0), host(1)).value();
  EXPECT_THAT(route.hops, ElementsAre(Hop{LinkId(0), true}, Hop{LinkId(1), false}));
  EXPECT_DOUBLE_EQ(route.eager.latency.value(), 120e-6);  // 50 us + 70 us
  EXPECT_DOUBLE_EQ(route.narrowest.value(), 12.5e6);      // the smaller of the two
  const Route back = find_route(cluster, host(1), host(0)).value();
  EXPECT_THAT(back.hops, ElementsAre(Hop{LinkId(1), true}, Hop{LinkId(0), false}));
}

TEST(Route, PrefersFewerHopsToLowerLatency) {
  const Cluster cluster = cluster_of({"a", "b", "c"}, {link(0, 1, 1, 1), link(1, 2, 1, 1), link(0, 2, 1, 1000)});
  EXPECT_THAT(links_of(find_route(cluster, host(0), host(2)).value()), ElementsAre(2));
}

TEST(Route, PrefersLowerLatencyAmongEquallyManyHops) {
  // a-b-d takes 10 + 40 us, a-c-d 30 + 10 us: the first hop alone would choose wrongly.
  const Cluster cluster =
      cluster_of({"a", "b", "c", "d"}, {link(0, 1, 1, 10), link(1, 3, 1, 40), link(0, 2, 1, 30), link(2, 3, 1, 10)});
  EXPECT_THAT(links_of(find_route(cluster, host(0), host(3)).value()), ElementsAre(2, 3));
  EXPECT_THAT(links_of(find_route(cluster, host(3), host(0)).value()), ElementsAre(3, 2));
}

TEST(Route, TakesTheFirstLinkAmongEquals) {
  const Cluster cluster = cluster_of({"a", "b"}, {link(1, 0, 1, 10), link(0, 1, 9, 10), link(0, 1, 1, 11)});
  EXPECT_THAT(find_route(cluster, host(0), host(1)).value().hops, ElementsAre(Hop{LinkId(0), false}));
}

TEST(Route, WithinAHostTakesItsFastestLoop) {
  const Cluster cluster = cluster_of({"a", "b"}, {link(0, 1, 1, 1), link(0, 0, 1, 5), link(0, 0, 1, 2)});
  EXPECT_THAT(find_route(cluster, host(0), host(0)).value().hops, ElementsAre(Hop{LinkId(2), true}));
}

TEST(Route, LoopsAreNoWayAnywhere) {
  const Cluster cluster = cluster_of({"a", "b"}, {link(0, 0, 1, 0), link(0, 1, 1, 1)});
  EXPECT_THAT(links_of(find_route(cluster, host(0), host(1)).value()), ElementsAre(1));
}

TEST(Route, ErrorsNameTheHosts) {
  const Cluster cluster = cluster_of({"a", "b", "c"}, {link(0, 1, 1, 1)});
  EXPECT_EQ(find_route(cluster, host(0), host(2)).error().message, "no links connect host 'a' with host 'c'");
  EXPECT_EQ(find_route(cluster, host(1), host(1)).error().message,
            "devices of host 'b' exchange data, but no link says how: add one between [b, b]");
}

TEST(Connected, OnlyTheHostsAskedForMatter) {
  const Cluster cluster = cluster_of({"a", "b", "c", "unused"}, {link(0, 1, 1, 1), link(1, 2, 1, 1)});
  EXPECT_TRUE(check_connected(cluster, {host(0), host(2), host(0)}).ok());
  EXPECT_TRUE(check_connected(cluster, {host(3)}).ok());
  EXPECT_TRUE(check_connected(cluster, {}).ok());
  EXPECT_EQ(check_connected(cluster, {host(0), host(2), host(3)}).error().message,
            "no links connect host 'a' with host 'unused'");
}

TEST(Names, AreFoundOrNone) {
  Cluster cluster = cluster_of({"a", "b"}, {});
  cluster.devices.push_back({"A", host(1), DeviceKind::cpu, bytes(1), Isa::v3});
  EXPECT_EQ(cluster.find_host("b"), host(1));
  EXPECT_FALSE(cluster.find_host("A").valid());
  EXPECT_EQ(cluster.find_device("A"), DeviceId(0));
  EXPECT_FALSE(cluster.find_device("a").valid());
}

TEST(Names, OfDeviceKindsReadBack) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::host}) {
    EXPECT_EQ(parse_device_kind(name_of(kind)).value(), kind);
  }
  EXPECT_EQ(parse_device_kind("tpu").error().message, "unknown device kind 'tpu'; 'cpu' and 'cuda' are supported");
}

}  // namespace
}  // namespace nlsplit
