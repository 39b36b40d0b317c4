#include "validate/statistics.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

Outcome outcome(double predicted, double measured, double spread = 0) {
  return {{predicted, measured, spread}, {predicted / 2, measured / 2, spread / 2}, {predicted, measured, spread}};
}

TEST(Quantile, IsLinearBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(quantile({0, 10, 20, 30, 40}, 0.9), 36);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.9), 7);
}

// Ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6·4 / (5·24).
TEST(Spearman, CorrelatesRanks) {
  const std::vector<double> a = {1, 2, 3, 4, 5}, b = {20, 10, 400, 300, 500}, down = {5, 4, 3, 2, 1};
  EXPECT_DOUBLE_EQ(spearman(a, b), 0.8);
  EXPECT_DOUBLE_EQ(spearman(a, a), 1);
  EXPECT_DOUBLE_EQ(spearman(a, down), -1);
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>(5, 1.0)), 0);
  const std::vector<double> ties = {1, 1, 2}, other = {1, 2, 3};  // ranks 1.5 1.5 3
  EXPECT_NEAR(spearman(ties, other), 0.8660254, 1e-7);
}

TEST(Quality, NeedsTwoPlans) {
  EXPECT_FALSE(quality_of(std::vector<Outcome>{}).has_value());
  EXPECT_FALSE(quality_of(std::vector{outcome(1, 1)}).has_value());
}

TEST(Quality, OfAPerfectPrediction) {
  const std::vector plans = {outcome(1, 1), outcome(2, 2), outcome(3, 3)};
  const Quality q = quality_of(plans).value();
  EXPECT_EQ(q.plans, 3u);
  EXPECT_EQ(q.throughput_error.max, 0);
  EXPECT_EQ(q.latency_error.max, 0);
  EXPECT_EQ(q.all.tau, 1);
  EXPECT_EQ(q.all.pairs, 3u);
  EXPECT_EQ(q.near_best.pairs, 0u);
  EXPECT_EQ(q.spearman, 1);
  EXPECT_TRUE(q.best_first);
  EXPECT_EQ(q.regret_1, 0);
}

// Predicted order a b c d; measured b (1.0), a (1.05), c (2), d (1.5).
TEST(Quality, OfAWrongOne) {
  const std::vector plans = {outcome(1.0, 1.05), outcome(1.1, 1.0), outcome(1.2, 2.0), outcome(1.3, 1.5)};
  const Quality q = quality_of(plans).value();
  EXPECT_NEAR(q.all.tau, (4.0 - 2.0) / 6, 1e-12);  // a-b and c-d are the wrong way round
  EXPECT_EQ(q.near_best.pairs, 1u);
  EXPECT_EQ(q.near_best.tau, -1);
  EXPECT_FALSE(q.best_first);
  EXPECT_NEAR(q.regret_1, 0.05, 1e-12);
  EXPECT_EQ(q.regret_5, 0);
  // Throughputs 1/1.2 predicted, 1/2 measured: two thirds too high.
  EXPECT_NEAR(q.throughput_error.max, 2.0 / 3, 1e-12);
  EXPECT_NEAR(q.latency_error.max, 0.4, 1e-12);
}

TEST(Quality, LeavesOutWhatTheSpreadHides) {
  const std::vector plans = {outcome(1.0, 1.05, 0.03), outcome(1.1, 1.0, 0.03), outcome(2, 3, 0.03)};
  const Quality q = quality_of(plans).value();
  EXPECT_EQ(q.all.pairs, 2u);  // the first two may be equal
  EXPECT_EQ(q.all.tau, 1);
  EXPECT_TRUE(q.best_first);
  EXPECT_NEAR(q.regret_1, 0.05, 1e-12);
}

// Throughput's order is right, latency's is not: what is asked for decides.
TEST(Quality, OrderAndRegretAreOfTheScore) {
  std::vector plans = {outcome(1, 1), outcome(2, 2)};
  plans[0].score = {1, 3, 0};
  plans[1].score = {2, 2, 0};
  const Quality q = quality_of(plans).value();
  EXPECT_EQ(q.throughput_error.max, 0);
  EXPECT_EQ(q.all.tau, -1);
  EXPECT_EQ(q.regret_1, 0.5);
}

TEST(Quality, RegretHasARangeIfPlansRanOften) {
  std::vector plans = {outcome(1, 1.1), outcome(2, 1)};
  plans[0].scores = {1.0, 1.1, 1.2};
  plans[1].scores = {0.9, 1.0};
  EXPECT_FALSE(quality_of(plans)->regret_range.has_value());
  plans[1].scores.push_back(1.1);
  const Range range = quality_of(plans)->regret_range.value();
  EXPECT_EQ(range.low, 0);
  EXPECT_GT(range.high, 0.1);
  EXPECT_LE(range.high, 1.2 / 0.9 - 1);
  plans[0].scores = plans[1].scores = {1, 1, 1};
  EXPECT_EQ(quality_of(plans)->regret_range->high, 0);
}

TEST(Quality, ATieInThePredictionIsNoOrder) {
  const std::vector plans = {outcome(1, 1), outcome(1, 2)};
  EXPECT_EQ(quality_of(plans)->all.tau, 0);
}

}  // namespace
}  // namespace nlsplit
