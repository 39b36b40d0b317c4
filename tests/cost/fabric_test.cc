// Routes of fabrics: they are ways along the links that topology.h makes, as long as the formulas say.
#include "cost/fabric.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cost/topology.h"

namespace nlsplit {
namespace {

LinkSpec spec(double bandwidth = 1e9, double latency = 1e-6) { return {bytes_per_second(bandwidth), seconds(latency)}; }

Cluster made(const Topology& topology) {
  Cluster cluster;
  const Status status = add_topology(cluster, topology);
  EXPECT_TRUE(status.ok()) << status.error().to_string();
  return cluster;
}

size_t hosts_of(const Cluster& cluster) {
  return static_cast<size_t>(std::ranges::count(cluster.hosts, false, &Host::is_switch));
}

HostId walk(const Cluster& cluster, const Route& route, HostId at) {
  for (const Hop& hop : route.hops) {
    const Link& link = cluster.links[hop.link.index()];
    EXPECT_EQ(hop.forward ? link.a : link.b, at) << "hop over " << link.name;
    at = hop.forward ? link.b : link.a;
  }
  return at;
}

// Every pair's route leads from one to the other and has as many hops as `length` says.
template <class Length>
void expect_routes(const Cluster& cluster, size_t hosts, const Length& length) {
  ASSERT_EQ(hosts_of(cluster), hosts);
  for (size_t a = 0; a < hosts; ++a) {
    for (size_t b = 0; b < hosts; ++b) {
      if (a == b) continue;
      const auto route = find_path(cluster, HostId(a), HostId(b));
      ASSERT_TRUE(route.ok()) << route.error().to_string();
      EXPECT_EQ(walk(cluster, *route, HostId(a)), HostId(b)) << a << " to " << b;
      EXPECT_EQ(route->hops.size(), length(a, b)) << a << " to " << b;
    }
  }
}

FatTreeNetwork fat_tree(std::vector<FatTree::Level> levels) {
  FatTreeNetwork network{{levels}, {}};
  network.links.assign(levels.size(), spec());
  return network;
}

// Twice the height of the lowest switch above both.
TEST(FatTree, RoutesGoUpNoFurtherThanNeeded) {
  for (const auto& levels : std::vector<std::vector<FatTree::Level>>{
           {{4, 1, 1}, {4, 2, 1}}, {{2, 1, 2}, {3, 2, 2}, {2, 3, 1}}, {{3, 2, 1}, {2, 2, 3}}, {{5, 1, 1}}}) {
    const Cluster cluster = made(fat_tree(levels));
    size_t hosts = 1;
    for (const auto& level : levels) hosts *= static_cast<size_t>(level.down);
    expect_routes(cluster, hosts, [&](size_t a, size_t b) {
      size_t height = 0;
      for (const auto& level : levels) {
        if (a == b) break;
        a /= static_cast<size_t>(level.down);
        b /= static_cast<size_t>(level.down);
        ++height;
      }
      return 2 * height;
    });
  }
}

// k-ary 2-tree with 4 leaves of 4 hosts and 4 spines: 16 + 16 links; of level 2 there are 4 * 4.
TEST(FatTree, HasTheCountsOfTheFormula) {
  const FatTree tree{{{4, 1, 1}, {4, 4, 1}}};
  EXPECT_EQ(host_count(tree), 16);
  EXPECT_EQ(node_count(tree, 1), 4);  // leaves: 16 / 4 * 1
  EXPECT_EQ(node_count(tree, 2), 4);  // spines: w1 w2 = 4
  EXPECT_EQ(link_count(tree), 32);
}

// D-mod-k: the messages of one host to the hosts of another leaf take all the spines evenly, and all messages to one
// host the same one.
TEST(FatTree, SpreadsDestinationsOverSpines) {
  const Cluster cluster = made(fat_tree({{4, 1, 1}, {4, 4, 1}}));
  std::map<size_t, int> of_host_0;
  for (size_t to = 4; to < 8; ++to) ++of_host_0[find_path(cluster, HostId(0), HostId(to))->hops[1].link.index()];
  EXPECT_EQ(of_host_0.size(), 4u);
  for (size_t from = 0; from < 12; ++from) {
    // spine ⌊d / w1⌋ mod 4 = 13 mod 4 = 1: the down link is leaf 3's port 1
    EXPECT_EQ(find_path(cluster, HostId(from), HostId(13))->hops[2].link, LinkId(16 + 3 * 4 + 1));
  }
  // All-to-all loads every upward link of a level alike: 12 destinations outside its leaf for each of 4 hosts, over 4.
  std::map<size_t, int> load;
  for (size_t a = 0; a < 16; ++a) {
    for (size_t b = 0; b < 16; ++b) {
      if (a / 4 != b / 4) ++load[find_path(cluster, HostId(a), HostId(b))->hops[1].link.index()];
    }
  }
  EXPECT_EQ(load.size(), 16u);
  for (const auto& [link, count] : load) EXPECT_EQ(count, 12) << link;
}

TEST(Torus, RoutesAreManhattanDistancesRoundTheEdges) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 4, 4}, {5, 3}, {2, 2, 3}, {1, 6}, {2}, {7, 1, 2}}) {
    const Cluster cluster = made(TorusNetwork{{shape}, spec()});
    size_t hosts = 1;
    for (const int64_t extent : shape) hosts *= static_cast<size_t>(extent);
    expect_routes(cluster, hosts, [&](size_t a, size_t b) {
      size_t steps = 0;
      for (const int64_t extent : shape) {
        const auto e = static_cast<size_t>(extent);
        const size_t apart = (a % e + e - b % e) % e;
        steps += std::min(apart, e - apart);
        a /= e;
        b /= e;
      }
      return steps;
    });
  }
}

// From (0, 0) to (2, 1) of 4 x 4, host 6: x first (up: the destination's coordinate is larger), then y.
TEST(Torus, GoesAlongTheFirstAxisFirst) {
  const Cluster cluster = made(TorusNetwork{{{4, 4}}, spec()});
  const Route route = find_path(cluster, HostId(0), HostId(6)).value();
  EXPECT_THAT(route.hops,
              ::testing::ElementsAre(Hop{LinkId(0), true}, Hop{LinkId(1), true}, Hop{LinkId(16 + 2), true}));
  // Back, from x 2 to x 0: as far both ways, and the destination's coordinate is smaller.
  EXPECT_THAT(find_path(cluster, HostId(2), HostId(0))->hops,
              ::testing::ElementsAre(Hop{LinkId(1), false}, Hop{LinkId(0), false}));
}

TEST(Dragonfly, RoutesAreMinimal) {
  for (const Dragonfly& fly :
       {Dragonfly{9, 4, 2}, Dragonfly{3, 2, 3}, Dragonfly{5, 1, 2}, Dragonfly{1, 4, 1}, Dragonfly{7, 3, 1}}) {
    const Cluster cluster = made(DragonflyNetwork{fly, spec(), spec(), spec()});
    expect_routes(cluster, static_cast<size_t>(host_count(fly)), [&](size_t from, size_t to) {
      const auto a = static_cast<int64_t>(from) / fly.hosts, b = static_cast<int64_t>(to) / fly.hosts;
      const int64_t ga = a / fly.routers, gb = b / fly.routers;
      size_t hops = 2;  // to a router and from one
      if (ga == gb) return hops + (a == b ? 0 : 1);
      const auto towards = [&](int64_t group, int64_t other) {
        return (other < group ? other : other - 1) % fly.routers;
      };
      return hops + 1 + (a % fly.routers != towards(ga, gb) ? 1 : 0) + (b % fly.routers != towards(gb, ga) ? 1 : 0);
    });
  }
}

TEST(Dragonfly, JoinsEachTwoGroupsOnceAndRoutersEvenly) {
  const Dragonfly fly{9, 4, 2};  // a h = 4 * 2 = g - 1: every router has two links to other groups
  const Cluster cluster = made(DragonflyNetwork{fly, spec(), spec(), spec()});
  EXPECT_EQ(cluster.links.size(), 72u + 9 * 6 + 36);
  std::map<HostId, int> ends;
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t l = 72 + 54; l < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    ++ends[link.a];
    ++ends[link.b];
    pairs.emplace((link.a.index() - 72) / 4, (link.b.index() - 72) / 4);
  }
  EXPECT_EQ(pairs.size(), 36u);
  EXPECT_EQ(ends.size(), 36u);
  for (const auto& [router, count] : ends) EXPECT_EQ(count, 2);
}

TEST(Topology, StarRacksAndWanAreTrees) {
  const Cluster star = made(Star{5, spec()});
  EXPECT_EQ(find_path(star, star.find_host("h0"), star.find_host("h4"))->hops.size(), 2u);
  const Cluster racks = made(Racks{3, 2, spec(), spec()});
  EXPECT_EQ(find_path(racks, racks.find_host("h0"), racks.find_host("h1"))->hops.size(), 2u);
  EXPECT_EQ(find_path(racks, racks.find_host("h1"), racks.find_host("h2"))->hops.size(), 4u);
  Cluster wan = made(Wan{{{"x", 2, spec()}, {"y", 1, spec()}}});
  EXPECT_FALSE(check_connected(wan, {wan.find_host("x0"), wan.find_host("y0")}).ok());
  wan.links.push_back({"far", wan.find_host("x"), wan.find_host("y"), bytes_per_second(1e6), seconds(0.02), true});
  EXPECT_DOUBLE_EQ(find_path(wan, wan.find_host("x1"), wan.find_host("y0"))->eager.latency.value(), 0.020002);
}

// From board to board the air is crossed twice: half the rate. To a host on the cable once.
TEST(Topology, WifiSharesItsAir) {
  Cluster wifi = made(Wifi{3, spec(5e6, 1e-3)});
  wifi.hosts.push_back({"desk", false});
  wifi.links.push_back({"desk-ap", wifi.find_host("desk"), wifi.find_host("ap"), bytes_per_second(1e8), seconds(1e-4)});
  const HostId h0 = wifi.find_host("h0"), h2 = wifi.find_host("h2"), desk = wifi.find_host("desk");
  const Route between = find_path(wifi, h0, h2).value();
  EXPECT_EQ(between.hops, (std::vector<Hop>{{LinkId(0), true}, {LinkId(0), true}}));
  EXPECT_DOUBLE_EQ(between.narrowest.value(), 2.5e6);
  EXPECT_DOUBLE_EQ(between.eager.latency.value(), 2e-3);
  const Route wired = find_path(wifi, desk, h2).value();
  EXPECT_DOUBLE_EQ(wired.narrowest.value(), 5e6);
  EXPECT_EQ(name_of(wifi, wired.hops[1]), "air");
}

TEST(Topology, SizesAreChecked) {
  Cluster cluster;
  for (const Topology& huge : std::vector<Topology>{
           Star{1'000'000, spec()}, Racks{1000, 1000, spec(), spec()}, TorusNetwork{{{1000, 1000, 1000}}, spec()},
           TorusNetwork{{std::vector<int64_t>(16, 1'000'000)}, spec()}, DragonflyNetwork{{1000, 1000, 1}, {}, {}, {}},
           fat_tree(std::vector<FatTree::Level>(16, {1'000'000, 1'000'000, 1'000'000})), fat_tree({{2, 1'000'000, 1}}),
           Wan{{{"a", 60'000, spec()}, {"b", 60'000, spec()}}}}) {
    const Status status = add_topology(cluster, huge);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("at most 65536 hosts"));
    EXPECT_TRUE(cluster.hosts.empty());
  }
}

// Devices behind PCIe and NVLink on two hosts of a torus, and a host beside it: each way is the shortest there is.
TEST(Route, LeadsThroughHostsAndFabric) {
  Cluster cluster = made(TorusNetwork{{{3, 3}}, spec(1e9, 10e-6)});
  std::vector<InnerNetwork> inner;
  for (const size_t host : {size_t{4}, size_t{0}}) {  // not in order
    InnerNetwork network{HostId(host), "g", {}, {spec(16e9, 4e-6), false}, Peers{spec(50e9, 2e-6), false}};
    for (int d = 0; d < 3; ++d) {
      network.devices.push_back(HostId(cluster.hosts.size()));
      cluster.hosts.push_back({fmt::format("h{}.g{}", host, d), false, HostId(host)});
    }
    inner.push_back(network);
  }
  const HostId camera(cluster.hosts.size());
  cluster.hosts.push_back({"camera", false});
  cluster.links.push_back({"camera-h8", camera, HostId(8), bytes_per_second(1e8), seconds(1e-3)});
  add_inner_networks(cluster, inner);
  const auto host = [&](const char* name) { return cluster.find_host(name); };
  const auto path = [&](const char* a, const char* b) {
    Route route = find_path(cluster, host(a), host(b)).value();
    EXPECT_EQ(walk(cluster, route, host(a)), host(b)) << a << " to " << b;
    return route;
  };
  EXPECT_EQ(path("h0.g0", "h0.g2").hops.size(), 1u);  // NVLink
  EXPECT_DOUBLE_EQ(path("h0.g0", "h0.g2").narrowest.value(), 50e9);
  EXPECT_EQ(path("h0.g0", "h0").hops.size(), 1u);  // PCIe
  const Route far = path("h0.g1", "h4.g0");        // PCIe, x, y, PCIe
  EXPECT_EQ(far.hops.size(), 4u);
  EXPECT_DOUBLE_EQ(far.eager.latency.value(), 28e-6);
  EXPECT_DOUBLE_EQ(far.narrowest.value(), 1e9);
  EXPECT_EQ(path("camera", "h4.g2").hops.size(), 4u);  // cable, from h8 (2, 2) to h4 (1, 1), PCIe
  EXPECT_EQ(path("h4.g2", "camera").hops.size(), 4u);
  EXPECT_EQ(path("h0", "h1").hops.size(), 1u);
  // A cable of one's own between two hosts of it is taken where it is shorter.
  cluster.inner_links = 0;  // the links within become ordinary ones
  cluster.inner.clear();
  cluster.links.push_back({"mine", HostId(0), HostId(4), bytes_per_second(1e9), seconds(1e-3)});
  EXPECT_EQ(path("h0", "h4").hops.size(), 1u);
  EXPECT_EQ(path("h0.g1", "h4.g0").hops.size(), 3u);
}

TEST(Topology, SharedBusesAndSwitchedPeers) {
  Cluster cluster = made(Star{2, spec(1e9, 1e-6)});
  InnerNetwork network{cluster.find_host("h1"), "g", {}, {spec(16e9, 4e-6), true}, Peers{spec(50e9, 2e-6), true}};
  for (const char* name : {"h1.g0", "h1.g1"}) {
    network.devices.push_back(HostId(cluster.hosts.size()));
    cluster.hosts.push_back({name, false, network.host});
  }
  add_inner_networks(cluster, {network});
  const HostId g0 = cluster.find_host("h1.g0"), g1 = cluster.find_host("h1.g1");
  // Both ways to another device have two hops; NVLink is the quicker one.
  const Route peers = find_path(cluster, g0, g1).value();
  EXPECT_DOUBLE_EQ(peers.narrowest.value(), 50e9);
  EXPECT_DOUBLE_EQ(peers.eager.latency.value(), 2e-6);
  const Route out = find_path(cluster, g0, cluster.find_host("h0")).value();
  EXPECT_EQ(out.hops.size(), 4u);
  EXPECT_DOUBLE_EQ(out.eager.latency.value(), 6e-6);  // 4 + 1 + 1
  // Both devices' messages to their host share the bus.
  EXPECT_EQ(out.hops[1], find_path(cluster, g1, cluster.find_host("h1"))->hops[1]);
}

}  // namespace
}  // namespace nlsplit
