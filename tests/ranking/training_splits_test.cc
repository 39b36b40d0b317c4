// Training whose stages are split inside their layers: what search finds, what it says of plans before they are
// lowered, and what is told of plans that training refuses.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "compile/split.h"
#include "partition/cuts.h"
#include "partition/expand.h"
#include "partition/network.h"
#include "partition/split_load.h"
#include "ranking/evaluate.h"
#include "ranking/ranking.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

struct Knobs {
  std::string model = "zoo:mlp", workload = "batch: 8, micro_batches: [1, 2], optimizer: adam", memory = "1GiB";
  std::string bandwidth = "100Gbps", latency = "5us", search = "{splits: [layer, replicate, tensor]}", plans = "{}";
  std::string hosts = "a, b, c";  // of A, B and C
};

// Slow devices at a switch with fast links.
Scenario slow_devices(const Knobs& k) {
  std::string devices, links;
  std::string letter = "A";
  for (const char host : k.hosts) {
    if (host < 'a') continue;
    devices +=
        fmt::format("  {}: {{host: {}, memory: {}, costs: {{roofline: {{compute: 1GFLOPS, memory: 10GBps}}}}}}\n",
                    letter, host, k.memory);
    const std::string link =
        fmt::format("  - {{between: [{}, s], bandwidth: {}, latency: {}}}\n", host, k.bandwidth, k.latency);
    if (links.find(link) == std::string::npos)
      links += link;
    else
      links +=
          fmt::format("  - {{between: [{}, {}], bandwidth: {}, latency: {}}}\n", host, host, k.bandwidth, k.latency);
    ++letter[0];
  }
  auto scenario = parse_scenario(fmt::format(R"(model: {}
workload: {{mode: training, {}}}
switches: [s]
devices:
{}links:
{}source: a
sink: a
search: {}
plans: {}
)",
                                             k.model, k.workload, devices, links, k.search, k.plans),
                                 "slow.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return *scenario;
}

Ranking ranked(const Knobs& knobs, const RankOptions& options = {}) {
  const Scenario scenario = slow_devices(knobs);
  auto ranking = rank_plans(scenario, load_model(scenario).value(), options);
  EXPECT_TRUE(ranking.ok()) << ranking.error().to_string();
  return std::move(ranking).value();
}

bool is_tensor(const Plan& plan) {
  return std::ranges::any_of(plan.stages,
                             [](const Stage& stage) { return stage.split && stage.split->axis == SplitAxis::tensor; });
}

TEST(TrainingSplits, SearchFindsTheTensorSplitThatIsBest) {
  const Scenario scenario = slow_devices({});
  const Model model = load_model(scenario).value();
  const Ranking ranking = rank_plans(scenario, model, {}).value();
  const RankedPlan& best = ranking.judged.front();
  EXPECT_TRUE(is_tensor(best.plan)) << best.text;
  EXPECT_FALSE(best.own);
  EXPECT_GT(ranking.split_inside, 0u);
  double without = std::numeric_limits<double>::infinity();
  for (const RankedPlan& other : ranking.judged) {
    if (!has_splits(other.plan)) without = std::min(without, other.estimate.makespan_s);
  }
  EXPECT_GT(without, 1.2 * best.estimate.makespan_s) << best.text;
  ASSERT_TRUE(ranking.bound.has_value());
  EXPECT_LE(*ranking.bound, best.estimate.makespan_s);
  // The same lowering as that of one's own plans.
  const TimedPlan timed = time_plan(scenario, model.graph, best.plan).value();
  EXPECT_DOUBLE_EQ(timed.estimate.makespan_s, best.estimate.makespan_s);
  EXPECT_EQ(timed.estimate.largest_memory, best.estimate.largest_memory);
}

// Half of the weights, gradients and optimizer's tensors fit in a device, and no cut between layers halves them.
TEST(TrainingSplits, SearchFindsThemWhereNothingElseFits) {
  const Ranking ranking = ranked({.memory = "6000KiB", .hosts = "a, b"});
  ASSERT_FALSE(ranking.judged.empty());
  EXPECT_FALSE(ranking.misfits.empty());
  for (const RankedPlan& plan : ranking.judged) {
    EXPECT_TRUE(has_splits(plan.plan)) << plan.text;
    EXPECT_LE(plan.estimate.largest_memory, bytes(6000 * 1024));
  }
}

TEST(TrainingSplits, RankingsOfOneAndTwoWorkersAreTheSame) {
  const Ranking one = ranked({}, {.workers = 1}), two = ranked({}, {.workers = 2});
  ASSERT_EQ(one.judged.size(), two.judged.size());
  EXPECT_EQ(one.considered, two.considered);
  for (size_t i = 0; i < one.judged.size(); ++i) {
    EXPECT_EQ(one.judged[i].text, two.judged[i].text);
    EXPECT_EQ(one.judged[i].plan.schedule, two.judged[i].plan.schedule);
    EXPECT_EQ(one.judged[i].estimate.makespan_s, two.judged[i].estimate.makespan_s);
  }
}

// A pipeline of stages, each on as many of the devices as are drawn, split on an axis that it can be.
Plan random_plan(Random& random, const Graph& graph, size_t devices, int micro_batches) {
  const std::vector<size_t> cuts = find_cuts(graph);
  std::vector<size_t> order(devices);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < devices; ++i) std::swap(order[i], order[i + random.below(devices - i)]);
  Plan plan;
  plan.micro_batches = micro_batches;
  plan.schedule = random.below(2) == 0 ? "gpipe" : "1f1b";
  size_t begin = 0, used = 0;
  while (begin < graph.nodes.size()) {
    const bool last = used + 1 >= devices || random.below(2) == 0;
    size_t end = last ? graph.nodes.size() : cuts[random.below(cuts.size())];
    if (end <= begin) end = graph.nodes.size();
    const size_t left = devices - used, count = 1 + random.below(left);
    Stage stage{begin, end, {}};
    for (size_t i = 0; i < count; ++i) stage.devices.emplace_back(order[used + i]);
    used = std::min(used + count, devices - 1);  // the last device may have two stages
    const std::vector<SplitAxis> axes = applicable_axes(graph, begin, end);
    if (count > 1 && !axes.empty()) {
      std::vector<int64_t> shares;
      for (size_t i = 0; i < count; ++i) shares.push_back(1 + static_cast<int64_t>(random.below(3)));
      stage.split = Split{axes[random.below(axes.size())], false, shares};
    }
    plan.stages.push_back(std::move(stage));
    begin = end;
  }
  return plan;
}

TEST(TrainingSplits, NoRandomPlanBeatsTheBound) {
  Random random(25);
  int timed = 0;
  std::map<std::string, int> refusals;
  for (const char* model : {"zoo:mlp", "zoo:simple_cnn", "zoo:gpt2?layers=2&hidden=32&heads=2&vocab=64&length=16"}) {
    const Scenario scenario = slow_devices({.model = model, .search = "{splits: [layer, replicate, tensor, batch]}"});
    const Model loaded = load_model(scenario).value();
    const Ranking ranking = rank_plans(scenario, loaded, {}).value();
    ASSERT_TRUE(ranking.bound.has_value());
    const CostTable costs = cost_table(scenario, loaded.graph.name);
    for (const int micro_batches : {1, 2}) {
      const PreparedModel prepared = prepare_model(scenario, loaded.graph, micro_batches).value();
      for (int left = 34, tries = 0; left > 0 && tries < 500; ++tries) {
        const Plan plan = random_plan(random, prepared.kernels.graph, scenario.cluster.devices.size(), micro_batches);
        if (!has_splits(plan)) continue;
        const auto lowered = lower_plan(scenario, prepared, plan, costs);
        if (!lowered.ok()) {
          ++refusals[lowered.error().message];
          continue;
        }
        const double makespan = estimate_fast(scenario, *lowered).makespan_s;
        EXPECT_GE(makespan, *ranking.bound) << to_string(plan, prepared.kernels.graph, scenario.cluster);
        EXPECT_GE(makespan * 1.02, ranking.judged.front().estimate.makespan_s)
            << "search missed " << to_string(plan, prepared.kernels.graph, scenario.cluster);
        --left;
        ++timed;
      }
    }
  }
  EXPECT_GE(timed, 200) << fmt::format("{}", fmt::join(refusals, "\n"));
}

// What shards ask of devices and links, by the layouts alone, against the Program's.
TEST(TrainingSplits, LoadsAreThoseOfTheProgram) {
  for (const char* model : {"zoo:mlp", "zoo:gpt2?layers=2&hidden=32&heads=2&vocab=64&length=16"}) {
    for (const SplitAxis axis : {SplitAxis::tensor, SplitAxis::batch}) {
      SCOPED_TRACE(fmt::format("{} {}", model, name_of(axis)));
      const Scenario scenario = slow_devices({.model = model, .hosts = "a, b"});
      const Model loaded = load_model(scenario).value();
      const CostTable costs = cost_table(scenario, loaded.graph.name);
      const PreparedModel prepared = prepare_model(scenario, loaded.graph, 2).value();
      const Graph& graph = prepared.kernels.graph;
      const SearchCosts search = search_costs(scenario, prepared, costs).value();
      const Network network = make_network(scenario.cluster, scenario.endpoints.source, scenario.endpoints.source);
      SplitLoads loads(graph, scenario.cluster, network, search, exact_multiples(prepared.kernels));
      Plan plan;
      plan.micro_batches = 2;
      plan.schedule = "1f1b";
      plan.stages = {{0, graph.nodes.size(), {DeviceId(0), DeviceId(1)}, Split{axis, false, {1, 1}}}};
      const SplitLoad load = loads.of(plan.stages).value()[0][0];
      const LoweredPlan lowered = lower_plan(scenario, prepared, plan, costs).value();
      for (size_t k = 0; k < 2; ++k) {
        const double cheap = 2 * load.compute[k] + load.update_seconds[k], exact = lowered.load.device_seconds[k];
        EXPECT_LE(cheap, 1.03 * exact) << "a first micro-batch adds to no sum";
        EXPECT_GE(cheap, 0.85 * exact);
      }
      double cheap = 0, exact = 0;
      for (const size_t i : {size_t{1}, size_t{2}}) cheap += 2 * load.message_bytes[i] + load.sum_bytes[i];
      for (const DeviceProgram& device : lowered.program.devices) {
        for (const Slot& slot : device.order) {
          const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
          if (segment.name == "source") continue;
          for (const Instr& instr : segment.instrs) {
            if (instr.opcode == Opcode::send)
              exact += static_cast<double>(size_of(type_of(device, instr.reads[0])).value());
          }
        }
      }
      EXPECT_NEAR(cheap, exact, 0.1 * exact);
    }
  }
}

TEST(TrainingSplits, MegatronsRuleIsAmongTheRules) {
  const Ranking ranking = ranked(
      {.model = "zoo:gpt2?layers=2&hidden=32&heads=2&vocab=64&length=16", .hosts = "a, a, b, b"}, {.baselines = true});
  const auto rule = std::ranges::find(ranking.baselines, "megatron", &RankedBaseline::name);
  ASSERT_NE(rule, ranking.baselines.end());
  ASSERT_TRUE(rule->estimate.has_value()) << rule->why_not;
  ASSERT_EQ(rule->plan.stages.size(), 2u);
  for (const Stage& stage : rule->plan.stages) EXPECT_EQ(stage.split, (Split{SplitAxis::tensor, false, {1, 1}}));
  EXPECT_LE(ranking.judged.front().estimate.makespan_s, rule->estimate->makespan_s);
}

TEST(TrainingSplits, WhatTrainingRefusesIsLeftOutWithAWord) {
  const auto why = [](const Knobs& knobs) {
    const Ranking ranking = ranked(knobs);
    EXPECT_EQ(ranking.split_inside, 0u);
    EXPECT_FALSE(ranking.judged.empty());
    return ranking.why_not_inside;
  };
  const std::string usual = "batch: 8, micro_batches: [2], ";
  EXPECT_THAT(why({.workload = usual + "optimizer: adam, zero: 1"}), HasSubstr("zero: 1"));
  EXPECT_THAT(why({.workload = usual + "all_reduce: exact"}), HasSubstr("all_reduce: exact"));
  EXPECT_THAT(why({.model = "zoo:resnet18?image=64",
                   .workload = usual + "batch_norm: batch",
                   .search = "{splits: [channels], schedules: [1f1b]}"}),
              HasSubstr("batch_norm: batch"));
}

TEST(TrainingSplits, AnOwnPlanThatIsRefusedIsToldOfAndTheOthersAreRanked) {
  const Scenario scenario = slow_devices({.workload = "batch: 8, micro_batches: [2], zero: 1",
                                          .search = "{}",
                                          .plans = "{pair: [rest@tensor(A+B)], mine: [rest@A]}"});
  const Model model = load_model(scenario).value();
  const auto ranking = rank_plans(scenario, model, {});
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  ASSERT_EQ(ranking->own_refused.size(), 1u);
  EXPECT_THAT(to_string(ranking->own_refused[0]), HasSubstr("pair cannot be run: zero: 1"));
  EXPECT_TRUE(ranking->own_left_out.empty());
  EXPECT_TRUE(find_plan(*ranking, "mine").ok());
  const auto pair = find_plan(*ranking, "pair");
  ASSERT_FALSE(pair.ok());
  EXPECT_EQ(exit_code(pair.error()), 2);
  EXPECT_THAT(pair.error().to_string(), HasSubstr("slow.yaml:15:"));
}

// A schedule that a plan asks for and that does not exist for it.
TEST(TrainingSplits, AnOwnPlanWithoutItsScheduleIsToldOf) {
  const Ranking ranking = ranked({.search = "{}", .plans = "{deep: {stages: [..fc1@A, rest@B], schedule: dualpipe}}"});
  ASSERT_EQ(ranking.own_refused.size(), 1u);
  EXPECT_EQ(ranking.own_refused[0].name, "deep");
  EXPECT_FALSE(ranking.judged.empty());
}

}  // namespace
}  // namespace nlsplit
