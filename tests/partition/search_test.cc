// Search: complete where it says so, near it where it prunes, and never blind to a device class or a link.
#include "partition/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/chains.h"
#include "partition/score.h"

namespace nlsplit {
namespace {

using namespace testing;

std::string text_of(const ScoredPlan& plan, const Graph& graph, const Cluster& cluster) {
  return to_string(plan.plan, graph, cluster);
}

// Every assignment of ordered, disjoint device sets to every choice of cuts, the slow and obvious way.
void brute_force(const Scorer& scorer, size_t nodes, size_t devices, int most_replicas, std::vector<Stage>& stages,
                 uint32_t used, std::multiset<double>& bounds) {
  const size_t begin = stages.empty() ? 0 : stages.back().end;
  for (uint32_t group = 1; group < (1u << devices); ++group) {
    if ((group & used) != 0 || std::popcount(group) > most_replicas) continue;
    std::vector<DeviceId> members;
    for (size_t d = 0; d < devices; ++d) {
      if ((group >> d & 1) != 0) members.push_back(DeviceId(d));
    }
    for (size_t end = begin + 1; end <= nodes; ++end) {
      stages.push_back({begin, end, members});
      if (end == nodes)
        bounds.insert(scorer.bound(stages));
      else
        brute_force(scorer, nodes, devices, most_replicas, stages, used | group, bounds);
      stages.pop_back();
    }
  }
}

TEST(Search, IsTheBruteForceWhereTheSpaceIsSmall) {
  const size_t nodes = 5;
  const Graph graph = chain(nodes, 1000);
  const Cluster cluster = star(3, 1e6);
  SearchCosts costs = costs_of(nodes, {0.010, 0.013, 0.029}, 4000, 4);
  Random random(7);
  for (auto& row : costs.node_seconds) {
    for (double& s : row) s *= random.uniform(0.5, 2);
  }
  const HostId a(0);
  const Network network = make_network(cluster, a, a);
  const Scorer scorer(cluster, network, a, a, costs, find_crossings(graph, DType::f32));
  std::multiset<double> expected;
  std::vector<Stage> stages;
  brute_force(scorer, nodes, 3, 4, stages, 0, expected);

  SearchOptions options;
  options.max_candidates = 100000;
  const SearchResult result = search_layers(graph, cluster, a, a, costs, options).value();
  EXPECT_EQ(result.space, static_cast<double>(expected.size()));
  ASSERT_EQ(result.plans.size(), expected.size());
  auto want = expected.begin();
  for (const ScoredPlan& plan : result.plans) EXPECT_DOUBLE_EQ(plan.bound_seconds, *want++);  // best first
}

TEST(Search, PrunedSearchFindsTheBestOfARandomSpace) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const size_t nodes = 9;
    const Graph graph = chain(nodes, 1000);
    const Cluster cluster = star(4, random.uniform(1e5, 1e7));
    SearchCosts costs = costs_of(nodes, {0.01, 0.01, 0.01, 0.01}, 4000, 1 + static_cast<int>(random.below(16)));
    for (auto& row : costs.node_seconds) {
      const double speed = random.uniform(0.5, 3);
      for (double& s : row) s *= speed * random.uniform(0.3, 2);
    }
    const HostId a(0), d(3);
    SearchOptions options;
    options.max_candidates = 1'000'000;
    const SearchResult all = search_layers(graph, cluster, a, d, costs, options).value();
    options.max_candidates = 200;
    const SearchResult pruned = search_layers(graph, cluster, a, d, costs, options).value();
    EXPECT_EQ(static_cast<double>(all.plans.size()), all.space);
    EXPECT_LE(pruned.plans.size(), 200u);
    EXPECT_EQ(pruned.space, all.space);
    EXPECT_NEAR(pruned.plans[0].bound_seconds, all.plans[0].bound_seconds, 1e-12) << "seed " << seed;
  }
}

TEST(Search, KnowsTheBestSplitOfAChainOverUnequalMachines) {
  // 12 equal layers; A needs 1 s for each, B 2 s, C 3 s. Links take no time to speak of. In proportion to speed 1 : 1/2
  // : 1/3 the layers are 6.5 : 3.3 : 2.2; the whole numbers 6 : 3 : 2 leave one over, and A with 7 (7 s) beats B with 4
  // (8 s) and C with 3 (9 s). Many micro-batches make the fill (7 + 6 + 6 s) unimportant. All orders of the three are
  // equally good but for nothing.
  const Graph graph = chain(12, 1);
  const Cluster cluster = star(3, 1e15);
  const SearchCosts costs = costs_of(12, {1, 2, 3}, 4, 1000);
  SearchOptions options;
  options.replicate = false;
  const SearchResult result = search_layers(graph, cluster, HostId(0), HostId(0), costs, options).value();
  const ScoredPlan& best = result.plans[0];
  EXPECT_NEAR(best.bound_seconds, 1000 * 7.0 + 6 + 6, 1e-6);
  std::map<std::string, size_t> layers;
  for (const Stage& stage : best.plan.stages) layers[cluster.device(stage.devices[0]).name] = stage.end - stage.begin;
  EXPECT_EQ(layers, (std::map<std::string, size_t>{{"A", 7}, {"B", 3}, {"C", 2}}));
}

// B is twenty times as fast as A, where the inputs are; an input needs as long for its way to B as A for two jobs. So
// in 12 s A does 8 and 4 get to B. Without the way B does 20 of 21.
TEST(Search, ReplicasShareByTheirWays) {
  EXPECT_EQ(share_jobs(12, {1.5, 0.075}, {{}, {{0, 3.0}}}), (std::vector<int>{8, 4}));
  EXPECT_EQ(share_jobs(21, {1.5, 0.075}), (std::vector<int>{1, 20}));
  // C and D are reached over one link that carries a job in 1 s: A, as fast, does half.
  EXPECT_EQ(share_jobs(12, {1, 1, 1}, {{}, {{0, 1.0}}, {{0, 1.0}}}), (std::vector<int>{6, 3, 3}));
  // Two behind one uplink and one behind its own get what the uplinks carry.
  EXPECT_EQ(share_jobs(48, {1, 1, 1}, {{{0, 2.0}}, {{0, 2.0}}, {{1, 2.0}}}), (std::vector<int>{12, 12, 24}));
  // Equal links, unequal machines: the links decide.
  EXPECT_EQ(share_jobs(8, {1, 0.1}, {{{0, 2.0}}, {{1, 2.0}}}), (std::vector<int>{4, 4}));
  // All alike: as without.
  EXPECT_EQ(share_jobs(5, {1, 1, 1}, {{{0, 9.0}}, {{1, 9.0}}, {{2, 9.0}}}), (std::vector<int>{2, 2, 1}));
}

// 12 layers of 1 s on A, of 0.05 s on B, inputs on A; an input takes 24 s to B. Of 9 micro-batches A does 6 in 72 s.
TEST(Search, ReplicasBehindASlowLinkGetWhatItCarries) {
  const Graph graph = chain(12, 1);
  const auto input_bytes = static_cast<double>(size_of(graph.value(graph.inputs[0]).type).value());
  const Cluster cluster = star(2, input_bytes / 24);
  const SearchCosts costs = costs_of(12, {1, 0.05}, input_bytes, 9);
  const SearchResult result = search_layers(graph, cluster, HostId(0), HostId(0), costs, SearchOptions{}).value();
  const auto both = std::ranges::find_if(result.plans, [](const ScoredPlan& plan) {
    return plan.plan.stages.size() == 1 && plan.plan.stages[0].devices.size() == 2;
  });
  ASSERT_NE(both, result.plans.end());
  EXPECT_LT(both->bound_seconds, 9 * 12.0 * 0.75);
}

TEST(Search, ReplicasShareByTheirSpeed) {
  // The whole chain takes 12 s on A and 24 s on B: of 9 micro-batches A takes 6 and B 3, both in 72 s.
  EXPECT_EQ(share_jobs(9, {12, 24}), (std::vector<int>{6, 3}));
  EXPECT_EQ(share_jobs(5, {1, 1, 1}), (std::vector<int>{2, 2, 1}));
  const Graph graph = chain(12, 1);
  const Cluster cluster = star(2, 1e15);
  const SearchResult result =
      search_layers(graph, cluster, HostId(0), HostId(0), costs_of(12, {1, 2}, 4, 9), SearchOptions{}).value();
  const auto both = std::find_if(result.plans.begin(), result.plans.end(), [](const ScoredPlan& plan) {
    return plan.plan.stages.size() == 1 && plan.plan.stages[0].devices.size() == 2;
  });
  ASSERT_NE(both, result.plans.end());
  EXPECT_NEAR(both->bound_seconds, 72, 1e-9);
}

// A quick device with little memory looks best by time alone; plans that use it for too much must not crowd out others.
TEST(Search, PruningKnowsThatWeightsTakeMemory) {
  GraphBuilder builder("dense");
  ValueId value = builder.input("x", {DType::f32, {1, 64}});
  for (size_t i = 0; i < 40; ++i) {
    const ValueId weight = builder.weight(fmt::format("w{}", i), {DType::f32, {64, 64}}, ContentId{i + 1});
    value = builder.add(Op::MatMul, fmt::format("m{}", i), {value, weight}, {}).value();
  }
  builder.output(value);
  const Graph graph = std::move(builder).finish();
  Cluster cluster = star(4, 1e9);
  cluster.devices[1].memory = bytes(5 * 64 * 64 * 4);  // five layers' weights
  SearchOptions options;
  options.max_candidates = 50;
  const SearchResult result =
      search_layers(graph, cluster, HostId(0), HostId(0), costs_of(40, {1, 0.1, 1, 1}, 256, 4), options).value();
  size_t splits = 0;
  for (const ScoredPlan& plan : result.plans) {
    if (plan.plan.stages.size() == 1) continue;  // yardsticks, which others judge
    ++splits;
    for (const Stage& stage : plan.plan.stages) {
      const bool on_it = std::ranges::find(stage.devices, DeviceId(1)) != stage.devices.end();
      EXPECT_TRUE(!on_it || stage.end - stage.begin <= 5) << stage.begin << " to " << stage.end;
    }
  }
  EXPECT_GT(splits, 30u);
}

TEST(Search, ASlowLinkIsTheBound) {
  // 1000 floats cross the cut in each of 10 micro-batches: 4000 B at 4000 B/s are 1 s each, whatever the machines do.
  const Graph graph = chain(2, 1000);
  const Cluster cluster = star(2, 4000);
  const SearchCosts costs = costs_of(2, {0.1, 0.1}, 4000, 10);
  const Network network = make_network(cluster, HostId(0), HostId(1));
  const Scorer scorer(cluster, network, HostId(0), HostId(1), costs, find_crossings(graph, DType::f32));
  // One micro-batch: 0.1 + 1 + 0.1; the link is busy for nine more.
  EXPECT_NEAR(scorer.bound({{0, 1, {DeviceId(0)}}, {1, 2, {DeviceId(1)}}}), 10 * 1.0 + 0.2, 1e-12);
  // All on A: the result crosses instead. All on A with the sink there too: nothing does.
  EXPECT_NEAR(scorer.bound({{0, 2, {DeviceId(0)}}}), 10 * 1.0 + 0.2, 1e-12);
  const Network home = make_network(cluster, HostId(0), HostId(0));
  EXPECT_NEAR(Scorer(cluster, home, HostId(0), HostId(0), costs, find_crossings(graph, DType::f32))
                  .bound({{0, 2, {DeviceId(0)}}}),
              2, 1e-12);
}

TEST(Search, EqualMachinesAreNotTriedInEveryOrder) {
  const Graph graph = chain(6, 100);
  const Cluster cluster = star(4, 1e6);
  const SearchCosts costs = costs_of(6, {1, 1, 1, 1}, 400, 4);
  const Network network = make_network(cluster, HostId(0), HostId(0));
  // A is where inputs are; B, C and D are all alike.
  EXPECT_EQ(interchangeable_devices(cluster, HostId(0), HostId(0), network, costs.node_seconds),
            (std::vector<size_t>{0, 1, 1, 1}));
  EXPECT_EQ(interchangeable_devices(cluster, HostId(0), HostId(3), network, costs.node_seconds),
            (std::vector<size_t>{0, 1, 1, 3}));
  SearchOptions options;
  options.replicate = false;
  const SearchResult result = search_layers(graph, cluster, HostId(0), HostId(0), costs, options).value();
  std::set<std::string> seen;
  for (const ScoredPlan& plan : result.plans) {
    EXPECT_TRUE(seen.insert(text_of(plan, graph, cluster)).second) << "twice: " << text_of(plan, graph, cluster);
    if (plan.plan.stages.size() < 2) continue;
    // B is used before C, C before D.
    std::vector<std::string> order;
    for (const Stage& stage : plan.plan.stages) {
      const std::string name = cluster.device(stage.devices[0]).name;
      if (name != "A") order.push_back(name);
    }
    const std::vector<std::string> all = {"B", "C", "D"};
    ASSERT_LE(order.size(), all.size());
    EXPECT_TRUE(std::equal(order.begin(), order.end(), all.begin())) << text_of(plan, graph, cluster);
  }
}

TEST(Search, AnotherLinkOrAnotherNeighbourMakesADeviceDifferent) {
  Cluster cluster = star(4, 1e6);
  cluster.links[2].bandwidth = bytes_per_second(2e6);
  const std::vector<std::vector<double>> seconds(4, std::vector<double>(3, 1.0));
  EXPECT_EQ(
      interchangeable_devices(cluster, HostId(0), HostId(0), make_network(cluster, HostId(0), HostId(0)), seconds),
      (std::vector<size_t>{0, 1, 2, 1}));
  // A direct link between b and c: they are still alike, but d is not.
  cluster = star(4, 1e6);
  cluster.links.push_back({"", HostId(1), HostId(2), bytes_per_second(1e9), nlsplit::seconds(0), true});
  EXPECT_EQ(
      interchangeable_devices(cluster, HostId(0), HostId(0), make_network(cluster, HostId(0), HostId(0)), seconds),
      (std::vector<size_t>{0, 1, 1, 3}));
}

TEST(Search, AlwaysAnswersEverySingleDeviceAndPlainReplication) {
  const Graph graph = chain(8, 100);
  const Cluster cluster = star(3, 1e6);
  SearchOptions options;
  options.max_candidates = 5;
  const SearchResult result =
      search_layers(graph, cluster, HostId(0), HostId(0), costs_of(8, {3, 1, 2}, 400, 6), options).value();
  std::set<std::string> texts;
  for (const ScoredPlan& plan : result.plans) texts.insert(text_of(plan, graph, cluster));
  for (const char* text : {"A all", "B all", "C all", "B+C all", "A+B+C all"})
    EXPECT_TRUE(texts.contains(text)) << text;
  EXPECT_GT(result.space, static_cast<double>(result.plans.size()));
}

TEST(Search, OptionsNarrowTheSpace) {
  const Graph graph = chain(6, 100);
  const Cluster cluster = star(3, 1e6);
  const SearchCosts costs = costs_of(6, {3, 1, 2}, 400, 6);
  const auto all_plans = [&](SearchOptions options) {
    return search_layers(graph, cluster, HostId(0), HostId(0), costs, options).value().plans;
  };
  SearchOptions options;
  options.replicate = false;
  for (const ScoredPlan& plan : all_plans(options)) {
    for (const Stage& stage : plan.plan.stages) EXPECT_EQ(stage.devices.size(), 1u);
  }
  options.max_stages = 2;
  for (const ScoredPlan& plan : all_plans(options)) EXPECT_LE(plan.plan.stages.size(), 2u);
  options.layers = false;
  EXPECT_EQ(all_plans(options).size(), 3u);
}

TEST(Search, ADeviceNobodyCanReachIsLeftOut) {
  const Graph graph = chain(4, 100);
  Cluster cluster = star(3, 1e6);
  cluster.links.pop_back();
  const SearchResult result =
      search_layers(graph, cluster, HostId(0), HostId(0), costs_of(4, {1, 1, 1}, 400, 2), SearchOptions{}).value();
  for (const ScoredPlan& plan : result.plans) {
    EXPECT_EQ(text_of(plan, graph, cluster).find('C'), std::string::npos);
    EXPECT_TRUE(std::isfinite(plan.bound_seconds));
  }
}

TEST(SearchCosts, CountsBytesOverEveryCut) {
  // x -> r0 -> r1 -> add(r1, r0): behind r0 only r0 crosses, behind r1 both do.
  GraphBuilder builder("skip");
  const ValueId x = builder.input("x", {DType::f32, {1, 10}});
  const ValueId r0 = builder.add(Op::Relu, "r0", {x}, {}).value();
  const ValueId r1 = builder.add(Op::Relu, "r1", {r0}, {}).value();
  builder.output(builder.add(Op::Add, "add", {r1, r0}, {}).value());
  const Graph graph = std::move(builder).finish();
  const Cluster cluster = star(1, 1e6);
  const CostTable table({roofline(flops_per_second(1e9), bytes_per_second(1e9))}, "scenario");
  const SearchCosts costs = search_costs(graph, 3, cluster, table).value();
  EXPECT_EQ(costs.cut_bytes, (std::vector<double>{40, 40, 80, 40}));
  EXPECT_EQ(costs.input_bytes, 40);
  EXPECT_EQ(costs.output_bytes, 40);
  // Relu reads and writes 40 B, Add reads 80 and writes 40, at 1 GB/s.
  EXPECT_NEAR(costs.node_seconds[0][0], 80e-9, 1e-15);
  EXPECT_NEAR(costs.node_seconds[0][2], 120e-9, 1e-15);
}

TEST(Search, IsDeterministicAndFastForResNet50OnFourMachines) {
  Model model = zoo_model("resnet50").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const Cluster cluster = star(4, 125e6);
  const CostTable table(std::vector<CostSourcePtr>(4, roofline(flops_per_second(1e11), bytes_per_second(1e10))),
                        "scenario");
  const SearchCosts costs = search_costs(graph, 16, cluster, table).value();
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult one = search_layers(graph, cluster, HostId(0), HostId(0), costs, SearchOptions{}).value();
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const SearchResult two = search_layers(graph, cluster, HostId(0), HostId(0), costs, SearchOptions{}).value();
  EXPECT_EQ(one.plans.size(), SearchOptions{}.max_candidates);
  ASSERT_EQ(one.plans.size(), two.plans.size());
  for (size_t i = 0; i < one.plans.size(); ++i) EXPECT_EQ(one.plans[i].plan, two.plans[i].plan);
  EXPECT_LT(took, 2.0) << "a guard against disasters; bench/ has the figure";
  RecordProperty("milliseconds", fmt::format("{:.1f}", took * 1e3));
}

}  // namespace
}  // namespace nlsplit
