// Rankings of training steps, with every policy that schedules them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "ranking/small_scenario.h"
#include "schedule/schedules.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

bool trains(std::string_view name) {
  ScheduleInput input;
  input.micro_batches = 2;
  input.devices = 2;
  input.stage_devices = {{0}, {1}};
  input.stage_seconds = input.input_gradient_seconds = input.weight_gradient_seconds = {{1}, {1}};
  input.kept_until_input_gradient = input.kept_until_weight_gradient = {bytes(1), bytes(1)};
  const auto table = make_schedule(name, input);
  return table.ok() &&
         std::ranges::any_of(table->devices[0], [](const ScheduledSlot& slot) { return slot.phase == Phase::step; });
}

std::vector<std::string> training_policies() {
  std::vector<std::string> names;
  for (const SchedulePolicy& policy : all_schedules()) {
    if (trains(policy.name)) names.emplace_back(policy.name);
  }
  return names;
}

Result<Scenario> parsed_training(const std::string& schedules, const std::string& memory_b, const std::string& workload,
                                 const std::string& micro_batches) {
  return parse_scenario(fmt::format(R"(model: zoo:simple_cnn
workload: {{mode: training, batch: 16, micro_batches: [{}], {}}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 1GFLOPS, memory: 10GBps}}}}}}
  B: {{host: b, memory: {}, costs: {{roofline: {{compute: 1GFLOPS, memory: 10GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: 10Gbps, latency: 5us}}
source: a
sink: b
search: {{schedules: [{}]}}
plans: {{mine: [..relu1@A, rest@B]}}
)",
                                    micro_batches, workload, memory_b, schedules),
                        "train.yaml");
}

Scenario training_scenario(const std::string& schedules, const std::string& memory_b = "1GiB",
                           const std::string& workload = "optimizer: adam", const std::string& micro_batches = "2, 4") {
  const auto scenario = parsed_training(schedules, memory_b, workload, micro_batches);
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return *scenario;
}

Result<Ranking> ranked(const Scenario& scenario) {
  auto model = load_model(scenario);
  EXPECT_TRUE(model.ok()) << model.error().to_string();
  return rank_plans(scenario, *model, {});
}

// At 32 pixels the last stage of resnet18 has one pixel: one value a channel of one sample.
Scenario normalizing_scenario(const std::string& counts, const std::string& plans = "{}") {
  const std::string text = fmt::format(R"(model: zoo:resnet18?image=32
workload: {{mode: training, batch_norm: batch, batch: 4, micro_batches: {}}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 1GFLOPS, memory: 10GBps}}}}}}
source: a
sink: a
plans: {}
)",
                                       counts, plans);
  auto scenario = parse_scenario(text, "norm.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return *scenario;
}

TEST(TrainingRanking, LeavesOutCountsThatNormalizeOneValue) {
  const auto ranking = ranked(normalizing_scenario("[1, 2, 4]", "{mine: [rest@A]}"));
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  ASSERT_EQ(ranking->counts_left_out.size(), 1u);
  EXPECT_EQ(ranking->counts_left_out[0].micro_batches, 4);
  EXPECT_THAT(ranking->counts_left_out[0].why, HasSubstr("node layer4.0.bn1 normalizes f32[1,512,1,1]"));
  std::set<int> counts;
  for (const RankedPlan& plan : ranking->judged) counts.insert(plan.plan.micro_batches);
  EXPECT_EQ(counts, (std::set{1, 2}));
  // Where no count is left, the error stands where they are named.
  const auto none = ranked(normalizing_scenario("[4]"));
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().to_string(), HasSubstr("norm.yaml:2:72: batch_norm: batch: node layer4.0.bn1"));
  const auto own = ranked(normalizing_scenario("[1, 4]", "{mine: {stages: [rest@A], micro_batches: 4}}"));
  ASSERT_FALSE(own.ok());
  EXPECT_THAT(own.error().to_string(), HasSubstr("norm.yaml:7:"));
  // Frozen ones have their variance.
  Scenario frozen = normalizing_scenario("[4]");
  frozen.training->batch_norm = BatchNorm::frozen;
  EXPECT_TRUE(ranked(frozen).ok());
}

TEST(TrainingRanking, EveryPolicyThatTrainsIsRanked) {
  const std::vector<std::string> policies = training_policies();
  ASSERT_FALSE(policies.empty());
  for (const std::string& policy : policies) {
    Scenario scenario = training_scenario(policy, "1GiB", "optimizer: adam", policy == "search" ? "2" : "2, 4");
    if (policy == "search") scenario.search.layers = scenario.search.replicate = false;  // half a second a plan
    const auto ranking = ranked(scenario);
    if (!ranking.ok()) {  // one that wants several stages a device does not exist for these plans
      EXPECT_EQ(ranking.error().kind, ErrorKind::unsupported) << policy << ": " << ranking.error().to_string();
      continue;
    }
    for (const RankedPlan& plan : ranking->judged) {
      const Estimate& e = plan.estimate;
      EXPECT_GT(e.makespan_s, 0);
      EXPECT_NEAR(e.throughput, 16 / e.makespan_s, 1e-9 * e.throughput);  // samples of a whole step
      for (const DeviceEstimate& device : e.devices) {
        double sum = 0;
        for (const double time : device.phases) sum += time;
        EXPECT_NEAR(sum, device.share * e.makespan_s, 1e-9 * e.makespan_s);
        EXPECT_GT(device.phases[static_cast<size_t>(Phase::input_gradient)] +
                      device.phases[static_cast<size_t>(Phase::weight_gradient)],
                  0);
        EXPECT_GT(device.phases[static_cast<size_t>(Phase::step)], 0);
      }
    }
  }
}

// With one stage a device `interleaved` is 1F1B.
TEST(TrainingRanking, SchedulesThatAreTheSameStandOnce) {
  const Scenario scenario = training_scenario("1f1b, interleaved");
  const auto ranking = ranked(scenario);
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  const auto twice = [](const RankedPlan& a, const RankedPlan& b) {
    return !a.own && !b.own && a.plan.stages == b.plan.stages && a.plan.micro_batches == b.plan.micro_batches;
  };
  size_t simulated = 0;
  for (const RankedPlan& a : ranking->judged) {
    for (const RankedPlan& b : ranking->judged) {
      if (a.plan.schedule != "1f1b" || b.plan.schedule != "interleaved" || !twice(a, b)) continue;
      ++simulated;
      EXPECT_EQ(a.slots, b.slots);
      EXPECT_NE(a.slots, 0u);
    }
  }
  EXPECT_GT(simulated, 0u);
  const std::vector<size_t> top = kept(*ranking);
  for (size_t i = 0; i < top.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_FALSE(twice(ranking->judged[top[i]], ranking->judged[top[k]]));
  }
}

TEST(TrainingRanking, SchedulesOfOtherOrdersAreKeptApart) {
  const auto ranking = ranked(training_scenario("1f1b, gpipe", "1GiB", "optimizer: adam", "4"));
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  std::map<std::string, uint64_t> slots;  // by schedule, of two stages
  for (const RankedPlan& plan : ranking->judged) {
    if (plan.own) slots[plan.plan.schedule] = plan.slots;
  }
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_NE(slots.at("1f1b"), slots.at("gpipe"));
}

TEST(TrainingRanking, PlansThatKeepTooMuchAreLeftOut) {
  const std::vector<std::string> policies = training_policies();
  ASSERT_FALSE(policies.empty());
  // simple_cnn's parameters, gradients and two of Adam's numbers do not fit in 64 KiB, whoever has activations there.
  const auto ranking = ranked(training_scenario(policies[0], "64KiB"));
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  ASSERT_FALSE(ranking->misfits.empty());
  EXPECT_EQ(ranking->misfits[0].device, "B");
  for (const RankedPlan& plan : ranking->judged) {
    for (const DeviceEstimate& device : plan.estimate.devices) {
      if (device.name != "B") continue;
      EXPECT_LE(device.memory, bytes(64 << 10));
    }
  }
}

TEST(TrainingRanking, RecomputationTradesTimeForMemory) {
  const std::vector<std::string> policies = training_policies();
  ASSERT_FALSE(policies.empty());
  const auto single = [&](const std::string& workload) {
    const auto ranking = ranked(training_scenario(policies[0], "1GiB", workload));
    EXPECT_TRUE(ranking.ok()) << ranking.error().to_string();
    return ranking->judged[ranking->verdict.memory.single.value()].estimate;
  };
  const Estimate keeps = single("recompute: none"), again = single("recompute: full");
  EXPECT_GT(again.makespan_s, keeps.makespan_s);
  EXPECT_LT(again.largest_memory, keeps.largest_memory);
}

Result<Ranking> ranked_with_memory(std::string_view memory, std::string_view batch, std::string_view search,
                                   std::string_view second_device) {
  const auto scenario = parse_scenario(fmt::format(R"(model: zoo:resnet18?image=64
workload: {{mode: training, micro_batches: [4], optimizer: sgd, batch: {0}}}
devices:
  A: &one {{host: a, memory: {1}, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
{2}source: a
sink: a
search: {{{3}}}
)",
                                                   batch, memory, second_device, search),
                                       "memory.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return ranked(*scenario);
}

TEST(TrainingRanking, StagesRecomputeWhereTheyHaveNoRoomElse) {
  const auto two = [](std::string_view recompute) {
    return ranked_with_memory(
        "90MiB", fmt::format("64, recompute: {}", recompute), "schedules: [1f1b]",
        "  B: {<<: *one, host: b}\nlinks: [{between: [a, b], bandwidth: 10Gbps, latency: 25us}]\n");
  };
  const auto none = two("none");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().to_string(), AllOf(HasSubstr("no plan fits"), HasSubstr("recompute: to_fit")));
  const auto full = two("full"), to_fit = two("to_fit");
  ASSERT_TRUE(full.ok()) << full.error().to_string();
  ASSERT_TRUE(to_fit.ok()) << to_fit.error().to_string();
  const RankedPlan& best = to_fit->judged[0];
  EXPECT_LE(best.estimate.makespan_s, full->judged[0].estimate.makespan_s);
  EXPECT_LE(best.estimate.largest_memory, bytes(90 << 20));
  ASSERT_EQ(best.plan.stages.size(), 2u);
  EXPECT_TRUE(best.plan.stages[0].recompute);  // it keeps two micro-batches
  EXPECT_FALSE(best.plan.stages[1].recompute);
}

TEST(TrainingRanking, WhatHasNoRoomUnderOneScheduleMayHaveItUnderAnother) {
  // GPipe keeps all four micro-batches, 1F1B one: 133 MiB and 115 MiB.
  const auto ranking = ranked_with_memory("120MiB", "16", "schedules: [gpipe, 1f1b]", "");
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  ASSERT_EQ(ranking->judged.size(), 1u);
  EXPECT_EQ(ranking->judged[0].plan.schedule, "1f1b");
}

TEST(TrainingRanking, AnInferenceScheduleIsRefusedAtItsPlace) {
  const auto scenario = parsed_training("streaming", "1GiB", "optimizer: adam", "2, 4");
  ASSERT_FALSE(scenario.ok());
  EXPECT_EQ(exit_code(scenario.error()), 2);
  EXPECT_THAT(scenario.error().to_string(), HasSubstr("train.yaml:10:21: none of these schedules is for training"));
}

// Seconds of a step of two replicas.
double replicas_step(std::string_view bandwidth, std::string_view all_reduce) {
  const auto scenario = parse_scenario(fmt::format(R"(model: zoo:resnet18?image=64
workload: {{mode: training, batch: 16, micro_batches: [4], optimizer: sgd{}}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
  B: {{host: b, memory: 1GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: {}, latency: 25us}}
source: a
sink: a
)",
                                                   all_reduce, bandwidth),
                                       "replicas.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  const Model model = load_model(*scenario).value();
  Plan plan;
  plan.stages.push_back({0, model.graph.nodes.size(), {DeviceId(0), DeviceId(1)}});
  plan.schedule = "1f1b";
  plan.micro_batches = 4;
  const auto timed = time_plan(*scenario, model.graph, plan);
  EXPECT_TRUE(timed.ok()) << timed.error().to_string();
  return timed->estimate.makespan_s;
}

// What is under way while the backward pass goes on costs nothing, where the network takes 0.2 to 0.7 times as long as
// the rest of that pass.
TEST(TrainingRanking, BucketsHideTheReductionBehindTheBackwardPass) {
  const double no_network = replicas_step("100Tbps", ", all_reduce_buckets: 1");
  for (const std::string_view bandwidth : {"40Gbps", "20Gbps", "10Gbps"}) {
    const double at_once = replicas_step(bandwidth, ", all_reduce_buckets: 1");
    const double buckets = replicas_step(bandwidth, "");
    EXPECT_GT(at_once - buckets, 0.85 * (at_once - no_network)) << bandwidth;
    EXPECT_LE(buckets, replicas_step(bandwidth, ", all_reduce_buckets: 2") * 1.001);
    EXPECT_LT(replicas_step(bandwidth, ", all_reduce_buckets: 2"), at_once);
  }
  // Where there is nothing to hide behind but the network's time itself, buckets do no harm.
  EXPECT_LT(replicas_step("100Mbps", ""), replicas_step("100Mbps", ", all_reduce_buckets: 1"));
}

}  // namespace
}  // namespace nlsplit
