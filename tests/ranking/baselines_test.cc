#include "partition/baselines.h"

#include <gmock/gmock.h>

#include "partition/baseline_metis.h"
#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(RankedBaselines, OnlyIfAskedFor) { EXPECT_TRUE(rank().ranking.baselines.empty()); }

TEST(RankedBaselines, AreTimedLikeTheOthersAndNeverBeatThem) {
  for (const std::string bandwidth : {"10kbps", "1Mbps", "10Gbps"}) {
    for (const std::string objective : {"throughput", "latency"}) {
      const Ranking ranking =
          rank({.bandwidth = bandwidth, .search = "{objective: " + objective + "}"}, {.baselines = true}).ranking;
      ASSERT_EQ(ranking.baselines.size(), baselines().size());
      const auto cost = [&](const Estimate& e) { return objective == "latency" ? e.latency_mean_s : e.makespan_s; };
      for (const RankedBaseline& baseline : ranking.baselines) {
        if (baseline.name == "metis" && !has_metis()) continue;
        ASSERT_TRUE(baseline.estimate) << baseline.name << ": " << baseline.why_not;
        EXPECT_GE(cost(*baseline.estimate), cost(ranking.judged[0].estimate) * (1 - 1e-9)) << baseline.name;
        for (const RankedPlan& plan : ranking.judged) {  // the same plan has the same figures
          if (plan.plan.stages != baseline.plan.stages || plan.plan.micro_batches != baseline.plan.micro_batches)
            continue;
          EXPECT_DOUBLE_EQ(plan.estimate.makespan_s, baseline.estimate->makespan_s);
        }
      }
      EXPECT_EQ(ranking.baselines[0].plan.stages.size(), 2u);  // even layers on both
    }
  }
}

TEST(RankedBaselines, SayWhyTheyCannotRun) {
  // Half of the layers, and with them fc1, do not fit on B.
  const Ranking ranking = rank({.memory_b = "512KiB"}, {.baselines = true}).ranking;
  EXPECT_FALSE(ranking.baselines[0].estimate);
  EXPECT_THAT(ranking.baselines[0].why_not, HasSubstr("B has 512 KiB and would need "));
  EXPECT_TRUE(ranking.baselines[1].estimate) << ranking.baselines[1].why_not;  // by memory, all is on A
}

}  // namespace
}  // namespace nlsplit
