// Plans that differ by next to nothing are seen once.
#include "ranking/alike.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

// A hundred layers of equal work on two devices, cut before layer `cut`.
Plan cut_at(size_t cut) { return {"", {{0, cut, {DeviceId(0)}}, {cut, 100, {DeviceId(1)}}}, 4, "streaming"}; }

const std::vector<double> even(100, 0.01);

TEST(Alike, CutsAFewLayersFurtherOn) {
  EXPECT_TRUE(are_alike(cut_at(50), cut_at(50), even));
  EXPECT_TRUE(are_alike(cut_at(50), cut_at(52), even));   // 0.02 of an even stage's 0.5: 4 %
  EXPECT_FALSE(are_alike(cut_at(50), cut_at(53), even));  // 6 %
  EXPECT_FALSE(are_alike(cut_at(50), cut_at(50), {}));    // of another model
}

TEST(Alike, StagesWithNextToNoWorkAreNotLookedAt) {
  Plan alone = cut_at(50);
  alone.stages = {{0, 100, {DeviceId(0)}}};
  EXPECT_TRUE(are_alike(alone, cut_at(98), even));  // the second stage has 2 % of the work
  EXPECT_TRUE(are_alike(cut_at(98), alone, even));
  EXPECT_FALSE(are_alike(alone, cut_at(97), even));  // 3 %, more than 5 % of an even stage
  Plan first = cut_at(2);                            // the other device has the work
  EXPECT_FALSE(are_alike(alone, first, even));
}

TEST(Alike, SharesThatAreNearlyTheSame) {
  const auto shared = [](std::vector<int64_t> shares, SplitAxis axis = SplitAxis::channels) {
    Plan plan = cut_at(50);
    plan.stages = {{0, 100, {DeviceId(0), DeviceId(1)}, Split{axis, false, std::move(shares)}}};
    return plan;
  };
  EXPECT_TRUE(are_alike(shared({2, 1}), shared({4, 2}), even));
  EXPECT_TRUE(are_alike(shared({2, 1}), shared({13, 7}), even));  // 0.65 for 0.67: 3 % of a half
  EXPECT_FALSE(are_alike(shared({2, 1}), shared({7, 4}), even));  // 0.64: 6 %
  EXPECT_FALSE(are_alike(shared({2, 1}), shared({2, 1}, SplitAxis::batch), even));
}

TEST(Alike, NothingElseMayDiffer) {
  Plan other = cut_at(50);
  other.micro_batches = 8;
  EXPECT_FALSE(are_alike(cut_at(50), other, even));
  other = cut_at(50);
  other.schedule = "gpipe";
  EXPECT_FALSE(are_alike(cut_at(50), other, even));
  other = cut_at(50);
  other.stages[1].devices = {DeviceId(2)};
  EXPECT_FALSE(are_alike(cut_at(50), other, even));
  other.stages[1] = {50, 100, {DeviceId(1), DeviceId(2)}};
  Plan split = other;
  split.stages[1].split = Split{SplitAxis::batch, false, {1, 1}};
  EXPECT_FALSE(are_alike(other, split, even));
}

ScoredPlan scored(size_t cut, double bound, double latency) {
  ScoredPlan plan;
  plan.plan = cut_at(cut);
  plan.bound_seconds = bound;
  plan.latency_seconds = latency;
  plan.memory_bytes = plan.busiest_seconds = 1;
  return plan;
}

TEST(Variants, AreEnoughWhenThreeStandForTheNext) {
  Variants variants(even);
  for (const size_t cut : {50, 51, 49}) {
    EXPECT_FALSE(variants.enough(scored(cut, 1, 1), "streaming"));
    variants.note(scored(cut, 1, 1), "streaming");
  }
  EXPECT_TRUE(variants.enough(scored(51, 1.1, 1), "streaming"));
  EXPECT_TRUE(variants.enough(scored(51, 0.99, 1), "streaming")) << "1 % is nothing";
  EXPECT_FALSE(variants.enough(scored(51, 1, 1), "gpipe"));
  EXPECT_FALSE(variants.enough(scored(53, 1, 1), "streaming")) << "6 % of a stage from the first";
  EXPECT_FALSE(variants.enough(scored(51, 1.1, 0.9), "streaming")) << "clearly better in latency";
}

TEST(Kept, ListsOnlyOneOfThoseAlikeAndAllOfOnesOwn) {
  Ranking ranking;
  ranking.node_shares = even;
  const auto add = [&](size_t cut, double makespan, bool own) {
    RankedPlan plan;
    plan.plan = cut_at(cut);
    plan.own = own;
    plan.estimate.makespan_s = makespan;
    ranking.order.push_back(ranking.judged.size());
    ranking.judged.push_back(std::move(plan));
  };
  add(50, 1, false);
  add(51, 1.01, false);  // alike
  add(51, 1.015, true);  // the user's
  add(49, 1.03, false);  // alike, but clearly worse
  add(70, 1.04, false);
  ranking.keep = 3;
  EXPECT_EQ(kept(ranking), (std::vector<size_t>{0, 2, 3}));
  ranking.keep = 5;
  EXPECT_EQ(kept(ranking), (std::vector<size_t>{0, 2, 3, 4}));
}

// 3 samples in the shares 1:2 and 3:5 are 1 and 2 of them.
TEST(Kept, ListsOneOfThoseWhoseSharesRoundToTheSame) {
  Ranking ranking;
  ranking.node_shares = even;
  ranking.keep = 5;
  const auto add = [&](std::vector<int64_t> shares, double makespan) {
    RankedPlan plan;
    plan.plan = cut_at(50);
    plan.plan.stages[0].devices = {DeviceId(0), DeviceId(1)};
    plan.plan.stages[0].split = Split{SplitAxis::batch, false, std::move(shares)};
    plan.estimate.makespan_s = makespan;
    ranking.order.push_back(ranking.judged.size());
    ranking.judged.push_back(std::move(plan));
  };
  add({1, 2}, 1);
  add({3, 5}, 1);
  add({2, 1}, 1.01);
  EXPECT_EQ(kept(ranking), (std::vector<size_t>{0, 2}));
}

}  // namespace
}  // namespace nlsplit
