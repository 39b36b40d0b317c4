// The verdict where the answer is known beforehand.
#include <gmock/gmock.h>

#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;

const Estimate& of(const Ranking& ranking, const std::optional<size_t>& index) {
  return ranking.judged.at(index.value()).estimate;
}

TEST(Verdict, TheBestOfEachKindIsTheBest) {
  const Ranking ranking = rank().ranking;
  const auto check = [&](const Yardsticks& best, auto cost) {
    for (const RankedPlan& plan : ranking.judged) {
      const auto& kind = plan.plan.stages.size() > 1               ? best.split
                         : plan.plan.stages[0].devices.size() == 1 ? best.single
                                                                   : best.copies;
      EXPECT_LE(cost(of(ranking, kind)), cost(plan.estimate)) << plan.text;
    }
  };
  check(ranking.verdict.throughput, [](const Estimate& e) { return e.makespan_s; });
  check(ranking.verdict.latency, [](const Estimate& e) { return e.latency_mean_s; });
  check(ranking.verdict.memory, [](const Estimate& e) { return e.largest_memory; });
}

// One kbit/s: even the smallest message takes longer than the whole network on one machine.
TEST(Verdict, ASlowLinkCannotPay) {
  const Ranking ranking = rank({.bandwidth = "1kbps", .compute = "100MFLOPS"}).ranking;
  const Verdict& v = ranking.verdict;
  EXPECT_LT(of(ranking, v.throughput.split).throughput, of(ranking, v.throughput.single).throughput / 2);
  // The devices are slow and the pipeline has enough micro-batches, so faster links would make it pay.
  ASSERT_TRUE(v.break_even.has_value());
  EXPECT_GT(*v.break_even, 1);
  EXPECT_GT(v.gain_without_network.value(), 1);
}

// A little above the break-even bandwidth splitting pays, a little below it does not, whoever asks.
TEST(Verdict, BreakEvenIsWhereSplittingBeginsToPay) {
  const Ranked before = rank({.bandwidth = "1kbps", .compute = "100MFLOPS"});
  const double factor = before.ranking.verdict.break_even.value();
  for (const double nudge : {0.9, 1.1}) {
    Scenario scenario = before.scenario;
    for (Link& link : scenario.cluster.links) link.bandwidth = link.bandwidth * factor * nudge;
    const auto after = rank_plans(scenario, before.model, {});
    ASSERT_TRUE(after.ok());
    const Verdict& v = after->verdict;
    const double gain = of(*after, v.throughput.split).throughput / of(*after, v.throughput.single).throughput;
    EXPECT_EQ(gain > clearly_faster, nudge > 1) << gain;
  }
}

// Latency of a second on the way: no bandwidth helps.
TEST(Verdict, NoBandwidthHelpsAgainstLatency) {
  const Verdict v = rank({.latency = "1s", .compute = "100MFLOPS"}).ranking.verdict;
  EXPECT_FALSE(v.break_even.has_value());
  EXPECT_GT(v.gain_without_network.value(), 1);
}

// resnet18 needs 44.6 MiB of weights; two machines of 40 MiB hold it only together.
TEST(Verdict, SplittingIsTheOnlyWayWhereNoMachineHoldsTheModel) {
  const Ranking ranking =
      rank({.memory = "60MiB", .memory_b = "60MiB", .plans = "{}", .model = "zoo:resnet18"}).ranking;
  EXPECT_TRUE(ranking.verdict.throughput.split.has_value());
  EXPECT_FALSE(ranking.verdict.throughput.single.has_value());
  EXPECT_FALSE(ranking.verdict.throughput.copies.has_value());
  EXPECT_FALSE(ranking.verdict.break_even.has_value());
  EXPECT_EQ(ranking.misfits.size(), 2u);
}

}  // namespace
}  // namespace nlsplit
