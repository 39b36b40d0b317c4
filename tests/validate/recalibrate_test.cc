#include "validate/recalibrate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// Plan i computes i + 1 seconds on A, B hardly computes; a second of messages.
PlanSet set_of(int plans) {
  PlanSet set{"s.yaml", "net", 8, {}};
  for (int i = 0; i < plans; ++i) {
    PredictedPlan plan;
    plan.fingerprint = fmt::format("p{}", i);
    plan.devices = {"A", "B"};
    plan.compute_s = {1.0 + i, 0.01};
    plan.messages_s = 1;
    plan.makespan_s = 2.0 + i;
    plan.throughput = 8 / plan.makespan_s;
    plan.latency_mean_s = 1;
    set.plans.push_back(plan);
  }
  return set;
}

// Really computing takes `slower` times as long, and messages 1.5 times.
std::vector<PlanRun> runs_of(const PlanSet& set, double slower) {
  std::vector<PlanRun> runs;
  for (const PredictedPlan& plan : set.plans) {
    PlanRun run;
    run.fingerprint = plan.fingerprint;
    run.compute_s = {plan.compute_s[0] * slower, 5};
    run.messages_s = 1.5;
    run.makespans_s = {run.compute_s[0] + run.messages_s};
    run.latency_mean_s = 1;
    run.timeline = "{}";
    runs.push_back(run);
  }
  return runs;
}

TEST(Recalibrate, LearnsMediansOfDevicesThatComputeEnough) {
  const PlanSet set = set_of(4);
  std::vector<PlanRun> runs = runs_of(set, 1.2);
  runs[3].compute_s[0] *= 10;  // one that went wrong
  const Corrections learnt = learn(join(set, runs));
  ASSERT_EQ(learnt.computing.size(), 1u) << "B computes too little to tell";
  EXPECT_NEAR(learnt.computing.at("A"), 1.2, 1e-12);
  EXPECT_NEAR(learnt.messages, 1.5, 1e-12);
  EXPECT_EQ(learn(join(set, {})), Corrections{});
}

TEST(Recalibrate, LearnsHowFarRunsAreOffFromItsFactors) {
  const PlanSet set = set_of(5);
  std::vector<PlanRun> runs = runs_of(set, 1);
  const std::vector<double> off = {0.9, 1.1, 1, 0.8, 1.2};  // quartiles 0.9 and 1.1
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].compute_s[0] *= off[i];
    runs[i].messages_s = 2 * off[i];
    runs[i].makespans_s = {set.plans[i].makespan_s * off[i]};
  }
  const CorrectionSpreads learnt = learn(join(set, runs)).spreads;
  EXPECT_NEAR(learnt.computing.at("A"), 0.1, 1e-12);
  EXPECT_NEAR(learnt.messages.value(), 0.1, 1e-12);
  EXPECT_FALSE(learnt.plans.has_value()) << "these plans taught";
  const auto same = [&](const Corrections&) -> Result<PlanSet> { return set; };
  EXPECT_NEAR(recalibrate(set, runs, same)->corrections.spreads.plans.value(), 0.1, 1e-12);
  runs.resize(3);
  EXPECT_EQ(learn(join(set, runs)).spreads, CorrectionSpreads{}) << "three values have no quartiles";
}

TEST(Recalibrate, IsJudgedByPlansThatDidNotTeach) {
  const PlanSet set = set_of(6);
  std::vector<PlanRun> runs = runs_of(set, 1.2);
  // The second, fourth and sixth plan are twice as slow as the others: what one half learns misleads for the other.
  for (size_t i = 1; i < runs.size(); i += 2) {
    runs[i].compute_s[0] *= 2;
    runs[i].makespans_s[0] = runs[i].compute_s[0] + runs[i].messages_s;
  }
  std::vector<double> taught;
  const auto predict = [&](const Corrections& corrections) -> Result<PlanSet> {
    taught.push_back(corrections.computing.at("A"));
    PlanSet again = set;
    for (PredictedPlan& plan : again.plans)
      plan.makespan_s = plan.compute_s[0] * corrections.computing.at("A") + corrections.messages;
    return again;
  };
  const auto misled = recalibrate(set, runs, predict);
  ASSERT_TRUE(misled.ok()) << misled.error().to_string();
  ASSERT_EQ(taught.size(), 2u);
  EXPECT_NEAR(taught[0], 1.2, 1e-12);
  EXPECT_NEAR(taught[1], 2.4, 1e-12);
  EXPECT_GT(misled->after->throughput_error.median, 0.3);
  // Where all plans are alike it is exact.
  const auto exact = recalibrate(set, runs_of(set, 1.2), predict);
  ASSERT_TRUE(exact.ok());
  EXPECT_GT(exact->before->throughput_error.median, 0.2);
  EXPECT_NEAR(exact->after->throughput_error.max, 0, 1e-12);
  EXPECT_NEAR(exact->corrections.computing.at("A"), 1.2, 1e-12);
}

TEST(Recalibrate, SaysWhatIsMissing) {
  const PlanSet set = set_of(2);
  const auto same = [&](const Corrections&) -> Result<PlanSet> { return set; };
  const auto too_few = recalibrate(set, {runs_of(set, 1)[0]}, same);
  ASSERT_FALSE(too_few.ok());
  EXPECT_THAT(too_few.error().message, HasSubstr("at least two plans that ran"));
  const auto others = recalibrate(set, runs_of(set, 1), [&](const Corrections&) -> Result<PlanSet> {
    PlanSet other = set;
    other.plans[1].fingerprint = "x";
    return other;
  });
  ASSERT_FALSE(others.ok());
  EXPECT_THAT(others.error().message, HasSubstr("plan 2 of the second prediction is another one"));
}

}  // namespace
}  // namespace nlsplit
