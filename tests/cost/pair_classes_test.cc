#include "cost/pair_classes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "cost/topology.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Pairs = std::vector<std::pair<size_t, size_t>>;

LinkSpec wire(double bandwidth = 1e9, double latency = 1e-6) { return {bytes_per_second(bandwidth), seconds(latency)}; }

CostSourcePtr speed(double gflops) { return roofline(flops_per_second(gflops * 1e9), bytes_per_second(1e10)); }

struct World {
  Cluster cluster;
  std::vector<CostSourcePtr> costs;
  std::vector<HostId> hosts;  // with devices, in the order they got them

  // A device on each of hosts h0, h1, …
  static World of(const Topology& topology, size_t devices) {
    World world;
    CHECK(add_topology(world.cluster, topology).ok(), "a test's topology is too large");
    for (size_t host = 0; host < devices; ++host) world.add_device(world.cluster.find_host(fmt::format("h{}", host)));
    return world;
  }
  Device& add_device(HostId host) {
    cluster.devices.push_back({fmt::format("D{}", costs.size()), host, DeviceKind::cpu, bytes(1 << 30)});
    costs.push_back(speed(10));
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
    return cluster.devices.back();
  }
  std::vector<HostPair> all_pairs() const {
    std::vector<HostPair> pairs;
    for (size_t a = 0; a < hosts.size(); ++a)
      for (size_t b = a + 1; b < hosts.size(); ++b) pairs.push_back({hosts[a], hosts[b]});
    return pairs;
  }
  std::vector<PairClass> classes() const { return classes(all_pairs()); }
  std::vector<PairClass> classes(const std::vector<HostPair>& pairs) const {
    return value_of(pair_classes(cluster, costs, pairs));
  }
  size_t number(HostId host) const { return static_cast<size_t>(std::ranges::find(hosts, host) - hosts.begin()); }
  Pairs numbers(const PairClass& one) const {
    Pairs pairs;
    for (const HostPair& pair : one.pairs) pairs.emplace_back(number(pair.a), number(pair.b));
    return pairs;
  }
};

std::vector<size_t> sizes(const std::vector<PairClass>& classes) {
  std::vector<size_t> sizes;
  for (const PairClass& one : classes) sizes.push_back(one.pairs.size());
  return sizes;
}

// The pair turned round where its first host is none of these.
Pairs from(const std::set<size_t>& first, Pairs pairs) {
  for (auto& [a, b] : pairs)
    if (!first.contains(a)) std::swap(a, b);
  return pairs;
}

TEST(PairClasses, EqualHostsAtASwitchAreAlike) {
  World world = World::of(Star{4, wire()}, 4);
  world.cluster.devices[2].memory = bytes(1000);
  world.cluster.devices[1].name = "other";
  const std::vector<PairClass> classes = world.classes();
  ASSERT_EQ(classes.size(), 1u);
  EXPECT_EQ(world.numbers(classes[0]), (Pairs{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}));
  EXPECT_TRUE(classes[0].symmetric);
}

// Two slow hosts of four: whoever is slow stands on the same side of all pairs with one of the others.
TEST(PairClasses, DevicesDecide) {
  World world = World::of(Star{4, wire()}, 4);
  world.costs[1] = world.costs[2] = speed(5);
  const std::vector<PairClass> classes = world.classes();
  ASSERT_THAT(sizes(classes), ElementsAre(4, 1, 1));
  EXPECT_FALSE(classes[0].symmetric);
  const Pairs unlike = world.numbers(classes[0]);
  EXPECT_EQ(unlike, from(unlike[0].first == 0 ? std::set<size_t>{0, 3} : std::set<size_t>{1, 2}, unlike));
  EXPECT_EQ(world.numbers(classes[1]), (Pairs{{0, 3}}));
  EXPECT_EQ(world.numbers(classes[2]), (Pairs{{1, 2}}));
  EXPECT_TRUE(classes[1].symmetric && classes[2].symmetric);
}

TEST(PairClasses, AllThatMakesADeviceFastDecides) {
  const std::map<std::string, std::function<void(World&)>> changes = {
      {"cores", [](World& world) { world.cluster.devices[3].cores = 2; }},
      {"slowdown", [](World& world) { world.cluster.devices[3].slowdown = 2; }},
      {"level", [](World& world) { world.cluster.devices[3].level = Isa::v2; }},
      {"kind", [](World& world) { world.cluster.devices[3].kind = DeviceKind::cuda; }},
      {"costs", [](World& world) { world.costs[3] = speed(9); }},
      {"one more", [](World& world) { world.add_device(world.hosts[3]); }},
      {"none", [](World& world) { world.cluster.devices.pop_back(), world.costs.pop_back(); }}};
  for (const auto& [what, change] : changes) {
    World world = World::of(Star{4, wire()}, 4);
    const std::vector<HostPair> pairs = world.all_pairs();
    change(world);
    const std::vector<PairClass> classes = world.classes(pairs);
    ASSERT_THAT(sizes(classes), ElementsAre(3, 3)) << what;
    EXPECT_EQ(from({3}, world.numbers(classes[1])), (Pairs{{3, 0}, {3, 1}, {3, 2}})) << what;
  }
}

TEST(PairClasses, HostsOfOneMachineAreAPairOfTheirOwn) {
  World world = World::of(Star{4, wire()}, 4);
  world.cluster.devices[0].machine = world.cluster.devices[2].machine = "x";
  world.cluster.devices[1].machine = "y";
  const std::vector<PairClass> classes = world.classes();
  ASSERT_THAT(sizes(classes), ElementsAre(5, 1));
  EXPECT_EQ(world.numbers(classes[1]), (Pairs{{0, 2}}));
}

TEST(PairClasses, LinksDecide) {
  const std::map<std::string, std::function<void(Link&)>> changes = {
      {"bandwidth", [](Link& link) { link.bandwidth = bytes_per_second(9e8); }},
      {"latency", [](Link& link) { link.latency = seconds(2e-6); }},
      {"duplex", [](Link& link) { link.full_duplex = false; }},
      {"shared", [](Link& link) { link.shared = false; }}};
  for (const auto& [what, change] : changes) {
    World world = World::of(Star{4, wire()}, 4);
    change(world.cluster.links[3]);
    const std::vector<PairClass> classes = world.classes();
    ASSERT_THAT(sizes(classes), ElementsAre(3, 3)) << what;
    EXPECT_TRUE(classes[0].symmetric) << what;
    const Pairs slow = world.numbers(classes[1]);
    EXPECT_EQ(from({3}, slow), (Pairs{{3, 0}, {3, 1}, {3, 2}})) << what;
    EXPECT_EQ(slow[0].first == 3, slow[1].first == 3) << what;
    EXPECT_EQ(slow[0].first == 3, slow[2].first == 3) << what;
  }
}

TEST(PairClasses, RacksAndFatTrees) {
  EXPECT_THAT(sizes(World::of(Racks{2, 3, wire(), wire()}, 6).classes()), UnorderedElementsAre(6, 9));
  const FatTreeNetwork tree{{{{4, 1, 1}, {4, 2, 1}}}, {wire(), wire()}};
  const std::vector<PairClass> classes = World::of(tree, 16).classes();
  EXPECT_THAT(sizes(classes), UnorderedElementsAre(24, 96)) << "at one leaf, and over a spine, whichever it is";
  EXPECT_TRUE(classes[0].symmetric && classes[1].symmetric);
}

// a -fast- s -slow- b, and c -slow- t -fast- d.
TEST(PairClasses, APairMayBeTurnedRound) {
  World world;
  for (const char* name : {"a", "b", "c", "d", "s", "t"}) world.cluster.hosts.push_back({name, *name > 'd'});
  const auto link = [&](size_t a, size_t b, double bandwidth) {
    world.cluster.links.push_back({"", HostId(a), HostId(b), bytes_per_second(bandwidth), seconds(1e-4)});
  };
  link(0, 4, 2e9), link(4, 1, 1e9), link(2, 5, 1e9), link(5, 3, 2e9);
  for (size_t host = 0; host < 4; ++host) world.add_device(HostId(host));
  const std::vector<HostPair> pairs = {{HostId(0), HostId(1)}, {HostId(2), HostId(3)}};
  const std::vector<PairClass> classes = world.classes(pairs);
  ASSERT_EQ(classes.size(), 1u);
  EXPECT_FALSE(classes[0].symmetric);
  const Pairs found = world.numbers(classes[0]);
  EXPECT_EQ(from({0, 3}, found), (Pairs{{0, 1}, {3, 2}}));
  EXPECT_EQ(found[0].first == 0, found[1].first == 3) << "both begin at the same end";
  world.cluster.hosts[4].is_switch = false;  // a host that forwards
  EXPECT_EQ(world.classes(pairs).size(), 2u);
}

TEST(PairClasses, WithinHostsIsAnotherKind) {
  World world = World::of(Star{3, wire()}, 3);
  std::vector<HostPair> pairs = world.all_pairs();
  for (const HostId host : std::vector(world.hosts)) {
    world.add_device(host);
    world.cluster.links.push_back({"", host, host, bytes_per_second(1e10), seconds(1e-7)});
    pairs.push_back({host, host});
  }
  EXPECT_EQ(world.numbers(world.classes(pairs)[1]), (Pairs{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_THAT(sizes(world.classes(pairs)), ElementsAre(3, 3));
  world.cluster.links.back().bandwidth = bytes_per_second(2e10);
  EXPECT_THAT(sizes(world.classes(pairs)), ElementsAre(3, 2, 1));
  world.cluster.links.resize(3);  // no link says how
  EXPECT_THAT(sizes(world.classes(pairs)), ElementsAre(3, 3));
}

// A device with a bus stands on a host inside its host, whose processor moves its messages.
TEST(PairClasses, DevicesBehindBuses) {
  World world = World::of(Star{2, wire()}, 2);
  std::vector<InnerNetwork> inner;
  for (const HostId host : std::vector(world.hosts)) {
    const HostId device(world.cluster.hosts.size());
    world.cluster.hosts.push_back({world.cluster.hosts[host.index()].name + ".g", false, host});
    inner.push_back({host, "g", {device}, {wire(16e9, 4e-6), false}, {}});
    world.add_device(device).kind = DeviceKind::cuda;
  }
  add_inner_networks(world.cluster, inner);
  const HostId a = world.hosts[0], b = world.hosts[1], ga = world.hosts[2], gb = world.hosts[3];
  const std::vector<HostPair> pairs = {{a, b}, {a, ga}, {a, gb}, {b, ga}, {b, gb}, {ga, gb}};
  EXPECT_THAT(sizes(world.classes(pairs)), ElementsAre(1, 2, 2, 1));
  world.costs[1] = speed(5);
  EXPECT_THAT(sizes(world.classes(pairs)), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(PairClasses, WhatIsNotConnectedIsAnError) {
  World world = World::of(Wan{{{"x", 1, wire()}, {"y", 1, wire()}}}, 0);
  world.add_device(world.cluster.find_host("x0"));
  const std::vector<HostPair> pairs = {{world.hosts[0], world.cluster.find_host("y0")}};
  const auto classes = pair_classes(world.cluster, world.costs, pairs);
  ASSERT_FALSE(classes.ok());
  EXPECT_EQ(classes.error().message, "no links connect host 'x0' with host 'y0'");
}

// By the number of the host.
std::map<size_t, int> uses(const World& world, size_t most) {
  const std::vector<PairClass> classes = world.classes();
  const std::vector<std::vector<size_t>> chosen = spread_over_hosts(classes, most);
  std::map<size_t, int> uses;
  for (size_t c = 0; c < classes.size(); ++c) {
    for (const size_t p : chosen[c]) {
      ++uses[world.number(classes[c].pairs[p].a)];
      ++uses[world.number(classes[c].pairs[p].b)];
    }
  }
  return uses;
}

TEST(ChosenPairs, AreOfOtherHostsEach) {
  const World star = World::of(Star{16, wire()}, 16);
  for (const size_t most : {1, 2, 5, 8}) {
    EXPECT_EQ(spread_over_hosts(star.classes(), most)[0].size(), most);
    EXPECT_EQ(uses(star, most).size(), 2 * most);
    EXPECT_EQ(uses(star, most), uses(star, most)) << "they are always the same";
  }
  const std::map<size_t, int> two = uses(star, 2);
  EXPECT_FALSE(two.contains(0)) << "not always the first host";
  EXPECT_TRUE(two.begin()->first < 4 && two.rbegin()->first >= 12) << "nor hosts that stand together";
  for (const auto& [host, count] : uses(star, 16)) EXPECT_EQ(count, 2) << host;
  // Pairs of one class leave other hosts to the next.
  EXPECT_EQ(uses(World::of(Racks{2, 4, wire(), wire()}, 8), 2).size(), 8u);
}

TEST(ChosenPairs, AreAllOfFew) {
  const std::vector<PairClass> racks = World::of(Racks{2, 2, wire(), wire()}, 4).classes();
  ASSERT_THAT(sizes(racks), ElementsAre(2, 4));
  EXPECT_EQ(spread_over_hosts(racks, 2)[0], (std::vector<size_t>{0, 1}));
  const auto all = spread_over_hosts(racks, std::numeric_limits<size_t>::max());
  EXPECT_EQ(all[0], (std::vector<size_t>{0, 1}));
  EXPECT_EQ(all[1], (std::vector<size_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace nlsplit
