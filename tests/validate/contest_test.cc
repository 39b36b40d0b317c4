#include "validate/contest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace nlsplit {
namespace {

PlanSet set_of(size_t plans) {
  PlanSet set;
  for (size_t p = 0; p < plans; ++p) {
    PredictedPlan plan;
    plan.fingerprint = std::to_string(p);
    set.plans.push_back(std::move(plan));
  }
  return set;
}

PlanRun run_of(size_t plan, int round, double makespan) {
  PlanRun run;
  run.fingerprint = std::to_string(plan);
  run.round = round;
  run.makespans_s = {makespan};
  return run;
}

// Published tables of Student's t.
TEST(Student, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(0.95, 4), 2.1318, 0.001);
  EXPECT_NEAR(student_quantile(0.9995, 4), 8.6103, 0.02 * 8.6);
  EXPECT_NEAR(student_quantile(0.999, 10), 4.1437, 0.001);
  EXPECT_NEAR(student_quantile(0.9995, 30), 3.6460, 0.001);
}

TEST(Contest, NeedsRuns) { EXPECT_FALSE(hold_contest(set_of(2), {}, {}).has_value()); }

TEST(Contest, FewRoundsTellNothing) {
  std::vector<PlanRun> runs;
  for (int round = 0; round < static_cast<int>(least_pairs) - 1; ++round) {
    runs.push_back(run_of(0, round, 1));
    runs.push_back(run_of(1, round, 100));
  }
  const Contest contest = hold_contest(set_of(2), runs, {}).value();
  EXPECT_EQ(contest.left.size(), 2u);
  EXPECT_FALSE(contest.ends());
}

// Each round is of another minute, up to twice as slow: beside each other the plans still differ clearly.
TEST(Contest, ComparesWithinRounds) {
  Random random(5);
  std::vector<PlanRun> runs;
  for (int round = 0; round < 10; ++round) {
    const double minute = random.uniform(1, 2);
    runs.push_back(run_of(0, round, 1.05 * minute * random.uniform(0.99, 1.01)));
    runs.push_back(run_of(1, round, minute * random.uniform(0.99, 1.01)));
    runs.push_back(run_of(2, round, 1.3 * minute));
  }
  PlanRun failure = run_of(1, 3, 1);
  failure.error = "it hung";
  runs.push_back(failure);
  const Contest contest = hold_contest(set_of(4), runs, {.confidence = 0.9, .looks = 2}).value();
  EXPECT_EQ(contest.leader, 1u);
  ASSERT_EQ(contest.left.size(), 1u);
  EXPECT_TRUE(contest.ends());
  ASSERT_EQ(contest.out.size(), 2u);
  EXPECT_EQ(contest.out[0].plan, 0u);
  EXPECT_NEAR(contest.out[0].worse_by, std::log(1.05), 0.01);
}

TEST(Contest, EqualPlansEndItToo) {
  std::vector<PlanRun> runs;
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    for (size_t plan = 0; plan < 3; ++plan) runs.push_back(run_of(plan, round, random.uniform(0.998, 1.002)));
  }
  const Contest contest = hold_contest(set_of(3), runs, {}).value();
  EXPECT_EQ(contest.left.size(), 3u);
  EXPECT_TRUE(contest.ends());
}

// A plan that was out after five lucky or unlucky rounds is held against the leader's same rounds.
TEST(Contest, WhoIsOutEarlyStaysOut) {
  std::vector<PlanRun> runs;
  for (int round = 0; round < 10; ++round) {
    const double minute = round < 5 ? 1 : 2;  // the machine became slow
    runs.push_back(run_of(0, round, minute * (round % 2 == 0 ? 1.0 : 1.001)));
    runs.push_back(run_of(1, round, minute * (round % 2 == 0 ? 1.001 : 1.0)));
    if (round < 5) runs.push_back(run_of(2, round, 1.2));
  }
  const Contest contest = hold_contest(set_of(3), runs, {}).value();
  ASSERT_EQ(contest.out.size(), 1u);
  EXPECT_EQ(contest.out[0].plan, 2u);
}

// The promise: whenever one looks, the best plan is among those left in at least so many of the cases.
TEST(Contest, KeepsTheBestPlanAsOftenAsItSays) {
  constexpr int cases = 400, looks = 4;
  int held = 0;
  for (int c = 0; c < cases; ++c) {
    Random random(static_cast<uint64_t>(c) + 1);
    std::vector<double> truth;
    for (int plan = 0; plan < 6; ++plan) truth.push_back(random.uniform(1, 1.03));
    const auto best = static_cast<size_t>(std::ranges::min_element(truth) - truth.begin());
    std::vector<PlanRun> runs;
    bool always = true;
    for (int round = 0; round < looks * 5; ++round) {
      for (size_t plan = 0; plan < truth.size(); ++plan)
        runs.push_back(run_of(plan, round, truth[plan] * std::exp(0.03 * random.normal())));
      if (round % 5 != 4) continue;
      const Contest contest = hold_contest(set_of(6), runs, {.confidence = 0.9, .looks = looks}).value();
      always = always && std::ranges::any_of(contest.left, [&](const Contestant& it) { return it.plan == best; });
    }
    held += always ? 1 : 0;
  }
  EXPECT_GE(held, 0.9 * cases);
}

}  // namespace
}  // namespace nlsplit
