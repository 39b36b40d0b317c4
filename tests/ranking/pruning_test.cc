// Pruning: what is left out cannot matter, as far as the plans before it tell.
#include "ranking/pruning.h"

#include <gtest/gtest.h>

#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;

// A split of which search says so; the weights are 1 GB.
ScoredPlan split(double bound, double latency, double busiest) {
  ScoredPlan plan;
  plan.plan.stages = {{0, 1, {DeviceId(0)}}, {1, 2, {DeviceId(1)}}};
  plan.bound_seconds = bound;
  plan.latency_seconds = latency;
  plan.busiest_seconds = busiest;
  plan.memory_bytes = 1e9;
  return plan;
}

// Lowering finds 1.25 times of each; the bounds are 1, 2, 3, …
Pruning after(size_t plans, size_t wanted) {
  Pruning pruning(wanted, Objective::throughput);
  for (size_t i = 1; i <= plans; ++i) {
    const auto bound = static_cast<double>(i);
    const ScoredPlan plan = split(bound, 1, 1);
    EXPECT_TRUE(pruning.worth(plan)) << i;
    pruning.note(&plan, 1.25 * bound, {1.25 * bound, 1.25, 1.25e9, 1.25}, plan.plan);
  }
  return pruning;
}

TEST(Pruning, LooksAtSomeInAnyCase) {
  EXPECT_TRUE(after(Pruning::min_timed - 1, 10).worth(split(1e9, 1, 1)));
  EXPECT_FALSE(after(Pruning::min_timed, 10).worth(split(1e9, 1, 1)));
}

TEST(Pruning, LeavesOutWhatCannotBeAmongTheBest) {
  const Pruning pruning = after(Pruning::min_timed, 10);
  // The tenth takes 12.5 s. What is said to take 10 s takes 12.5 s.
  EXPECT_TRUE(pruning.worth(split(10, 1, 1)));
  EXPECT_FALSE(pruning.worth(split(10.1, 1, 1)));
}

// Whole models are held against whole models: many that are worse than the best splits are left out, but for the best.
TEST(Pruning, KeepsTheBestOfEachKind) {
  Pruning pruning = after(Pruning::min_timed, 10);
  const auto single = [](double bound) {
    ScoredPlan plan = split(bound, bound, bound);
    plan.plan.stages = {{0, 2, {DeviceId(0)}}};
    return plan;
  };
  for (size_t i = 0; i < Pruning::min_timed_unsplit; ++i) {
    EXPECT_TRUE(pruning.worth(single(50))) << i;
    const ScoredPlan plan = single(50);
    pruning.note(&plan, 60, {60, 60, 1e9, 60}, plan.plan);
  }
  EXPECT_FALSE(pruning.worth(single(50)));
  EXPECT_TRUE(pruning.worth(single(48)));
  EXPECT_FALSE(pruning.worth(split(48, 48, 48))) << "and splits against splits";
}

TEST(Pruning, KeepsWhatIsClearlyBetterInAnotherRespect) {
  const Pruning pruning = after(Pruning::min_timed, 10);
  EXPECT_TRUE(pruning.worth(split(1e9, 0.9, 1)));
  EXPECT_TRUE(pruning.worth(split(1e9, 1, 0.9)));
  EXPECT_FALSE(pruning.worth(split(1e9, 0.99, 0.99))) << "2 % are nothing";
  ScoredPlan small = split(1e9, 1, 1);
  small.memory_bytes = 0.9e9;
  EXPECT_TRUE(pruning.worth(small));
}

// One plan that beats its bound: others may.
TEST(Pruning, LearnsHowFarTheBoundIsFromTheTruth) {
  Pruning pruning = after(Pruning::min_timed, 10);
  const ScoredPlan overlapped = split(100, 1, 1);
  pruning.note(&overlapped, 50, {50, 1.25, 1.25e9, 1.25}, overlapped.plan);
  EXPECT_TRUE(pruning.worth(split(24.9, 1, 1)));
  EXPECT_FALSE(pruning.worth(split(25.1, 1, 1)));
}

// Stages split inside their layers are held against each other, and the best split may be one of either kind.
TEST(Pruning, JudgesSplitsInsideLayersByTheirLike) {
  Pruning pruning = after(Pruning::min_timed, 10);
  const auto inside = [](double bound, double latency) {
    ScoredPlan plan = split(bound, latency, 2);
    plan.memory_bytes = 2e9;
    plan.plan.stages = {{0, 2, {DeviceId(0), DeviceId(1)}, Split{SplitAxis::tensor, false, {1, 1}}}};
    return plan;
  };
  for (size_t i = 0; i < Pruning::min_timed_inside; ++i) {
    EXPECT_TRUE(pruning.worth(inside(100, 10))) << i;
    const ScoredPlan plan = inside(100, 10);
    pruning.note(&plan, 200, {200, 20, 4e9, 4}, plan.plan);
  }
  EXPECT_DOUBLE_EQ(pruning.least_score(inside(50, 10)), 50) << "twice the estimate is no rule for the next";
  EXPECT_FALSE(pruning.worth(inside(13, 10)));
  EXPECT_TRUE(pruning.worth(inside(12, 10)));
  EXPECT_FALSE(pruning.worth(inside(100, 1.25))) << "latencies of 1.25 are there";
  EXPECT_TRUE(pruning.worth(inside(100, 1.2)));
  const ScoredPlan fast = inside(100, 10);
  pruning.note(&fast, 50, {50, 20, 2e9, 2}, fast.plan);
  EXPECT_DOUBLE_EQ(pruning.least_score(inside(50, 10)), 25);
}

// Samples are of all plans, so with them nothing is pruned.
TEST(Pruning, DoesNotChangeTheTable) {
  const Screws screws = {.plans = "{mine: [rest@A]}", .model = "zoo:mobilenet_v2"};
  RankOptions all;
  all.samples = 1;
  const Ranking pruned = rank(screws).ranking, whole = rank(screws, all).ranking;
  EXPECT_LT(pruned.considered, whole.considered);
  ASSERT_GT(pruned.keep, 5u);
  for (size_t i = 0; i < pruned.keep; ++i) {
    EXPECT_EQ(pruned.judged[i].text, whole.judged[i].text);
    EXPECT_EQ(pruned.judged[i].plan.micro_batches, whole.judged[i].plan.micro_batches);
    EXPECT_EQ(pruned.judged[i].estimate.makespan_s, whole.judged[i].estimate.makespan_s);
  }
  // Nor, but for what is within 2 %, the best splits in other respects.
  const auto best = [](const Ranking& ranking, Yardsticks Verdict::*respect) {
    return ranking.judged.at((ranking.verdict.*respect).split.value()).estimate;
  };
  EXPECT_LE(best(pruned, &Verdict::latency).latency_mean_s,
            best(whole, &Verdict::latency).latency_mean_s * clearly_faster);
  EXPECT_LE(static_cast<double>(best(pruned, &Verdict::memory).largest_memory.value()),
            static_cast<double>(best(whole, &Verdict::memory).largest_memory.value()) * clearly_faster);
}

}  // namespace
}  // namespace nlsplit
