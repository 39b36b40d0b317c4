// Each method of search against the slow truth: dp is exhaustive, beam and anneal are near it.
#include "partition/search_methods.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <string>

#include "base/random.h"
#include "partition/chains.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct SearchCase {
  Graph graph;
  Cluster cluster;
  SearchCosts costs;
  HostId source, sink;
};

// A chain on a star: equal or unequal devices, links from much too slow to free, some with latency, source and sink
// where devices are or where none is.
SearchCase random_search_case(uint64_t seed, size_t most_nodes, size_t most_devices) {
  Random random(seed);
  const size_t nodes = 1 + random.below(most_nodes), devices = 1 + random.below(most_devices);
  const int64_t count = 1000;
  SearchCase c{chain(nodes, count), star(devices, std::pow(10, random.uniform(4, 9))), {}, HostId(0), HostId(0)};
  c.costs = costs_of(nodes, std::vector<double>(devices, 0.01), 4.0 * count, 1 + static_cast<int>(random.below(12)));
  const bool equal = random.below(3) == 0, uneven_layers = random.below(3) > 0;
  std::vector<double> layer(nodes, 1);
  for (double& l : layer) l = uneven_layers ? random.uniform(0.1, 3) : 1;
  for (auto& row : c.costs.node_seconds) {
    const double speed = equal ? 1 : random.uniform(0.3, 3);
    // Sometimes a device is good at some layers only.
    const bool odd = !equal && random.below(2) == 0;
    for (size_t n = 0; n < nodes; ++n) row[n] *= speed * layer[n] * (odd ? random.uniform(0.5, 2) : 1);
  }
  if (random.below(2) == 0) {  // one slow link
    Link& slow = c.cluster.links[random.below(devices)];
    slow.bandwidth = slow.bandwidth / 30;
  }
  if (random.below(2) == 0) {
    for (Link& link : c.cluster.links) link.latency = seconds(random.uniform(0, 0.01));
  }
  if (random.below(4) == 0) {
    for (Link& link : c.cluster.links) link.full_duplex = false;
  }
  c.source = HostId(random.below(devices));
  c.sink = random.below(2) == 0 ? c.source : HostId(random.below(devices));
  if (random.below(4) == 0) {  // data come from a host without devices
    c.cluster.hosts.push_back({"data", false});
    c.source = HostId(c.cluster.hosts.size() - 1);
    c.cluster.links.push_back({"", c.source, HostId(devices), bytes_per_second(1e7), seconds(1e-4), true});
  }
  return c;
}

SearchResult found(const SearchCase& c, const std::string& method, SearchOptions options = {}) {
  options.method = method;
  auto result = search_layers(c.graph, c.cluster, c.source, c.sink, c.costs, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}

TEST(SearchMethods, DpIsExhaustiveOnChains) {
  size_t pipelines = 0, replicas = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase c = random_search_case(seed, 12, 4);
    SearchOptions options;
    options.replicate = seed % 4 != 0;  // copies of the whole chain are often the best, and hide the rest
    const SearchResult all = found(c, "exhaustive", options), dp = found(c, "dp", options);
    EXPECT_TRUE(all.proved);
    EXPECT_TRUE(dp.proved);
    ASSERT_FALSE(all.plans.empty());
    EXPECT_NEAR(dp.plans[0].bound_seconds, all.plans[0].bound_seconds, 1e-12 * all.plans[0].bound_seconds);
    pipelines += all.plans[0].plan.stages.size() > 1;
    for (const Stage& stage : all.plans[0].plan.stages) replicas += stage.devices.size() > 1;
  }
  EXPECT_GT(pipelines, 30u);  // or the cases say nothing
  EXPECT_GT(replicas, 10u);
}

TEST(SearchMethods, DpIsExhaustiveWithFewerStagesAndDevices) {
  for (uint64_t seed = 1000; seed < 1060; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase c = random_search_case(seed, 10, 4);
    SearchOptions options;
    options.max_stages = 2;
    options.max_devices = 3;
    options.replicate = seed % 2 == 0;
    const SearchResult all = found(c, "exhaustive", options), dp = found(c, "dp", options);
    EXPECT_NEAR(dp.plans[0].bound_seconds, all.plans[0].bound_seconds, 1e-12 * all.plans[0].bound_seconds);
    for (const SearchResult* result : {&all, &dp}) {
      for (const ScoredPlan& plan : result->plans) {
        size_t devices = 0;
        for (const Stage& stage : plan.plan.stages) devices += stage.devices.size();
        EXPECT_LE(devices, 3u);
        EXPECT_LE(plan.plan.stages.size(), 2u);
      }
    }
  }
}

// A value that skips a stage is more than dp can tell: its plans are right, but it does not say they are proved.
TEST(SearchMethods, DpProvesNothingAboutSkips) {
  GraphBuilder builder("skip");
  const ValueId x = builder.input("x", {DType::f32, {1, 100}});
  const ValueId r0 = builder.add(Op::Relu, "r0", {x}, {}).value();
  const ValueId r1 = builder.add(Op::Relu, "r1", {r0}, {}).value();
  const ValueId r2 = builder.add(Op::Relu, "r2", {r1}, {}).value();
  builder.output(builder.add(Op::Add, "add", {r2, r0}, {}).value());
  const SearchCase c{std::move(builder).finish(), star(3, 1e5), costs_of(4, {0.01, 0.02, 0.03}, 400, 4), HostId(0),
                     HostId(0)};
  const SearchResult dp = found(c, "dp"), all = found(c, "exhaustive");
  EXPECT_FALSE(dp.proved);
  EXPECT_GE(dp.plans[0].bound_seconds, all.plans[0].bound_seconds);
}

TEST(SearchMethods, DpTakesManyUnlikeDevicesInOrder) {
  const size_t devices = 20, nodes = 40;
  Random random(3);
  SearchCase c{chain(nodes, 10), star(devices, 1e9), costs_of(nodes, std::vector<double>(devices, 0.01), 40, 32),
               HostId(0), HostId(0)};
  for (auto& row : c.costs.node_seconds) {
    const double speed = random.uniform(0.5, 2);
    for (double& s : row) s *= speed;
  }
  const SearchResult dp = found(c, "dp");
  EXPECT_FALSE(dp.proved);
  // A batch is 32 x 40 layers; shared among all devices as their speeds are it takes so long at least.
  double rate = 0;
  for (const auto& row : c.costs.node_seconds) rate += 1 / row[0];
  const double least = 32 * 40 / rate;
  EXPECT_GE(dp.plans[0].bound_seconds, least);
  EXPECT_LE(dp.plans[0].bound_seconds, 3 * least);
}

TEST(SearchMethods, ExhaustiveSaysHowLargeTheSpaceIs) {
  const SearchCase c{chain(60, 10), star(10, 1e6), costs_of(60, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 40, 8), HostId(0),
                     HostId(0)};
  SearchOptions options;
  options.method = "exhaustive";
  const auto result = search_layers(c.graph, c.cluster, c.source, c.sink, c.costs, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(result.error().message, HasSubstr("plans of 8 micro-batches"));
  options.method = "magic";
  const auto unknown = search_layers(c.graph, c.cluster, c.source, c.sink, c.costs, options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("'magic'; there are auto, exhaustive, dp, orders, beam, anneal"));
}

// The others may miss the best, but not by much, and never claim a bound below it.
TEST(SearchMethods, AllAreNearTheBest) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const SearchCase c = random_search_case(seed, 10, 4);
    const double best = found(c, "exhaustive").plans[0].bound_seconds;
    for (const SearchMethod& method : search_methods()) {
      SCOPED_TRACE(fmt::format("{} seed {}", method.name, seed));
      SearchOptions options;
      options.max_candidates = 300;
      const SearchResult result = found(c, std::string(method.name), options);
      EXPECT_GE(result.plans[0].bound_seconds, best * (1 - 1e-12));
      // `orders` does not try all orders of unlike devices with unlike links.
      EXPECT_LE(result.plans[0].bound_seconds, best * (method.name == "orders" ? 1.5 : 1.1));
      Plan plan = result.plans[0].plan;
      EXPECT_TRUE(check_plan(plan, c.graph, c.cluster, plan.micro_batches).ok());
    }
  }
}

TEST(SearchMethods, EachIsDeterministicAndAnswersNoPlanTwice) {
  const SearchCase c = random_search_case(17, 12, 4);
  for (const SearchMethod& method : search_methods()) {
    SCOPED_TRACE(std::string(method.name));
    SearchOptions options;
    options.max_candidates = 300;
    const SearchResult one = found(c, std::string(method.name), options),
                       two = found(c, std::string(method.name), options);
    ASSERT_EQ(one.plans.size(), two.plans.size());
    std::set<std::string> seen;
    for (size_t i = 0; i < one.plans.size(); ++i) {
      EXPECT_EQ(one.plans[i].plan, two.plans[i].plan);
      EXPECT_TRUE(seen.insert(to_string(one.plans[i].plan, c.graph, c.cluster)).second);
    }
  }
}

}  // namespace
}  // namespace nlsplit
