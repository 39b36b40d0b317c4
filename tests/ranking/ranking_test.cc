#include "ranking/ranking.h"

#include <gmock/gmock.h>

#include <set>

#include "program/verify.h"
#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

std::string described(const Ranking& ranking) {
  std::string text;
  for (const RankedPlan& plan : ranking.judged) {
    text +=
        fmt::format("{} {} {} {}\n", plan.text, plan.plan.micro_batches, plan.plan.schedule, plan.estimate.makespan_s);
  }
  return text;
}

TEST(Ranking, TwiceTheSame) { EXPECT_EQ(described(rank().ranking), described(rank().ranking)); }

TEST(Ranking, OrderIsTheObjectives) {
  const Ranking by_throughput = rank().ranking;
  const Ranking by_latency = rank({.search = "{objective: latency}"}).ranking;
  ASSERT_GT(by_throughput.judged.size(), 10u);
  for (size_t i = 1; i < by_throughput.judged.size(); ++i) {
    EXPECT_GE(by_throughput.judged[i].estimate.makespan_s, by_throughput.judged[i - 1].estimate.makespan_s);
  }
  for (size_t i = 1; i < by_latency.judged.size(); ++i) {
    EXPECT_GE(by_latency.judged[i].estimate.latency_mean_s, by_latency.judged[i - 1].estimate.latency_mean_s);
  }
}

TEST(Ranking, OwnPlansAndYardsticksAreAlwaysThere) {
  const Ranking ranking = rank({.search = "{keep: 1}"}).ranking;
  EXPECT_EQ(ranking.keep, 1u);
  std::set<int> own, single_a, single_b, copies;
  for (const RankedPlan& plan : ranking.judged) {
    const int count = plan.plan.micro_batches;
    if (plan.own) own.insert(count);
    if (plan.text == "A all") single_a.insert(count);
    if (plan.text == "B all") single_b.insert(count);
    if (plan.text == "A+B all") copies.insert(count);
  }
  EXPECT_EQ(own, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(single_a, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(single_b, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(copies, (std::set<int>{2, 4}));  // one micro-batch cannot be shared
}

TEST(Ranking, SaysWhichDevicesOfOnesOwnPlansAreIdle) {
  const Ranking ranking = rank({.plans = "{both: [rest@A+B]}"}).ranking;
  for (const RankedPlan& ranked : ranking.judged) {
    if (!ranked.own) continue;
    std::vector<std::string> notes;
    for (const PlanNote& note : ranked.notes) notes.push_back(note.text);
    if (ranked.plan.micro_batches == 1)
      EXPECT_THAT(notes, ::testing::ElementsAre("B has nothing to do with 1 micro-batch"));
    else
      EXPECT_THAT(notes, ::testing::IsEmpty());
  }
}

TEST(Ranking, FiguresHangTogether) {
  for (const RankedPlan& plan : rank().ranking.judged) {
    const Estimate& e = plan.estimate;
    EXPECT_NEAR(e.throughput * e.makespan_s, 8, 1e-9);
    EXPECT_LE(e.latency_mean_s, e.latency_max_s * (1 + 1e-12));
    EXPECT_LE(e.latency_max_s, e.makespan_s * (1 + 1e-12));
    EXPECT_LE(e.busiest_device_share, 1 + 1e-9);
    EXPECT_LE(e.busiest_link_share, 1 + 1e-9);
    double busiest = 0;
    Bytes largest;
    for (const DeviceEstimate& device : e.devices) {
      busiest = std::max(busiest, device.share);
      largest = std::max(largest, device.memory);
    }
    EXPECT_EQ(busiest, e.busiest_device_share);
    EXPECT_EQ(largest, e.largest_memory);
  }
}

// Of 8 samples the inputs are 3 * 8 * 8 floats each, the results 10.
TEST(Ranking, ADeviceWithoutRoomForTheBatchThatItsHostHoldsIsNotUsed) {
  const Ranking ranking = rank({.memory = "4KiB", .plans = "{}"}).ranking;
  ASSERT_EQ(ranking.no_room.size(), 1u);
  EXPECT_EQ(ranking.no_room[0].device, "A");
  EXPECT_EQ(ranking.no_room[0].has, bytes(4 << 10));
  EXPECT_EQ(ranking.no_room[0].needs, bytes(8 * (3 * 8 * 8 + 10) * 4));
  ASSERT_FALSE(ranking.judged.empty());
  for (const RankedPlan& plan : ranking.judged) EXPECT_THAT(plan.text, Not(HasSubstr("A")));
  EXPECT_TRUE(rank({.memory = "7KiB", .plans = "{}"}).ranking.no_room.empty());
}

// Whichever device of the host a plan names first holds the batch.
TEST(Ranking, ADeviceBesideOneWithRoomIsSearched) {
  Scenario scenario = small_scenario({.memory = "4KiB", .plans = "{}"});
  Device roomy = scenario.cluster.devices[1];
  roomy.name = "C";
  roomy.host = scenario.cluster.devices[0].host;
  scenario.cluster.devices.push_back(roomy);
  scenario.costs.push_back(scenario.costs[1]);
  const auto model = load_model(scenario);
  ASSERT_TRUE(model.ok());
  const auto ranking = rank_plans(scenario, *model, {});
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  EXPECT_TRUE(ranking->no_room.empty());
}

TEST(Ranking, PlansThatDoNotFitAreCountedAndOwnOnesNamed) {
  const Ranking ranking = rank({.memory_b = "512KiB"}).ranking;  // fc1's weights alone are 1 MiB
  ASSERT_EQ(ranking.misfits.size(), 1u);
  EXPECT_EQ(ranking.misfits[0].device, "B");
  EXPECT_GT(ranking.misfits[0].least_needed, bytes(1 << 20));
  EXPECT_GE(ranking.misfits[0].plans, 3u);
  ASSERT_EQ(ranking.own_misfits.size(), 1u);
  EXPECT_EQ(ranking.own_misfits[0].micro_batches, (std::vector<int>{1, 2, 4}));
  EXPECT_THAT(to_string(ranking.own_misfits[0]),
              HasSubstr("mine does not fit in 1, 2 or 4 micro-batches: B has 512 KiB"));
  for (const RankedPlan& plan : ranking.judged) {
    for (const DeviceEstimate& device : plan.estimate.devices) {
      if (device.name != "B") continue;
      EXPECT_LE(device.memory, bytes(512 << 10));
    }
  }
  const auto asked = find_plan(ranking, "mine");
  ASSERT_FALSE(asked.ok());
  EXPECT_THAT(asked.error().message, HasSubstr("does not fit"));
}

TEST(Ranking, FindsPlansByNumberAndName) {
  const Ranking ranking = rank().ranking;
  EXPECT_EQ(find_plan(ranking, "2")->text, ranking.judged[1].text);
  EXPECT_TRUE(find_plan(ranking, "mine")->own);
  for (const char* which : {"0", "1000", "-1", "1x", "", "yours"})
    EXPECT_FALSE(find_plan(ranking, which).ok()) << which;
}

TEST(Ranking, AnInterruptKeepsWhatThereIs) {
  int asked = 0;
  bool timing = false;
  RankOptions options;
  options.progress = [&timing](std::string_view phase, size_t, size_t) { timing |= phase == "timing plans"; };
  options.interrupted = [&] { return timing && ++asked > 12; };
  const Ranking ranking = rank({}, options).ranking;
  EXPECT_TRUE(ranking.interrupted);
  EXPECT_LE(ranking.judged.size(), 12u);  // that were timed
  EXPECT_GE(ranking.judged.size(), 4u);
  EXPECT_TRUE(ranking.verdict.throughput.single.has_value());  // yardsticks come first
  EXPECT_FALSE(rank().ranking.interrupted);
}

TEST(Ranking, TimingOnePlanAgreesWithItsRank) {
  const Ranked ranked = rank();
  for (const size_t i : {size_t{0}, ranked.ranking.judged.size() - 1}) {
    const RankedPlan& plan = ranked.ranking.judged[i];
    const auto timed = time_plan(ranked.scenario, ranked.model.graph, plan.plan);
    ASSERT_TRUE(timed.ok()) << timed.error().to_string();
    EXPECT_DOUBLE_EQ(timed->estimate.makespan_s, plan.estimate.makespan_s);
    EXPECT_TRUE(verify(timed->program).ok());
  }
}

}  // namespace
}  // namespace nlsplit
