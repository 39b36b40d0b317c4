#include "ranking/confidence.h"

#include <gmock/gmock.h>

#include "ranking/small_scenario.h"
#include "ranking/uncertain_scenario.h"
#include "ranking/worlds.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Confidence, TheSetIsThoseThatAreBestInMostWorlds) {
  // Ten worlds. Plan 0 is the best in six, plan 1 in three, plan 3 in one; plan 2 is as good as plan 0.
  const std::vector<std::vector<double>> costs = {{1, 1, 1, 1, 1, 1, 2, 2, 2, 2},
                                                  {2, 2, 2, 2, 2, 2, 1, 1, 1, 2},
                                                  {1.004, 1.004, 1, 1, 1, 1, 3, 3, 3, 3},
                                                  {4, 4, 4, 4, 4, 4, 4, 4, 4, 1}};
  EXPECT_THAT(confidence_of(costs, 0.6).set, ElementsAre(0));
  EXPECT_THAT(confidence_of(costs, 0.61).set, ElementsAre(0, 1));
  EXPECT_THAT(confidence_of(costs, 0.9).set, ElementsAre(0, 1));
  EXPECT_THAT(confidence_of(costs, 0.95).set, ElementsAre(0, 1, 3));
  const Confidence confidence = confidence_of(costs, 0.9);
  EXPECT_EQ(confidence.worlds, 10u);
  EXPECT_DOUBLE_EQ(confidence.covered, 0.9);
  EXPECT_DOUBLE_EQ(confidence.plans[2].best, 0.6) << "within 0.5 % counts";
  EXPECT_DOUBLE_EQ(confidence.plans[3].best, 0.1);
}

TEST(Confidence, AChosenPlanThatOthersMakeNeedlessIsLeftOut) {
  // Plan 0 wins in four of nine worlds, 1 and 2 together in all of them but one, which is plan 3's.
  const std::vector<std::vector<double>> costs = {{2, 2, 1, 1, 1, 1, 2, 2, 2},
                                                  {1, 1, 1, 2, 1, 2, 2, 2, 2},
                                                  {2, 2, 2, 1, 2, 1, 1, 1, 2},
                                                  {2, 2, 2, 2, 2, 2, 2, 2, 1}};
  EXPECT_THAT(confidence_of(costs, 0.99).set, ElementsAre(1, 2, 3));
}

TEST(Confidence, PlansThatCannotBeToldApartShareARank) {
  std::vector<double> first(100, 1), near(100, 1.2), far(100, 1.3), farther(100, 1.31);
  for (size_t w = 0; w < 11; ++w) near[w] = 0.9;  // worse than the first in 89 of 100
  for (size_t w = 0; w < 10; ++w) far[w] = 0.9;   // in 90
  farther[0] = 1.3;
  const Confidence confidence = confidence_of({first, near, far, farther}, 0.9);
  EXPECT_EQ(confidence.plans[0].rank, 0u);
  EXPECT_EQ(confidence.plans[1].rank, 0u);
  EXPECT_EQ(confidence.plans[2].rank, 2u);
  EXPECT_EQ(confidence.plans[3].rank, 3u) << "1.31 is clearly worse than 1.3";
}

TEST(Confidence, IntervalsAreQuantilesAndDifferencesAreWithinAWorld) {
  std::vector<double> one, twice;
  for (int w = 1; w <= 100; ++w) {
    one.push_back(w);
    twice.push_back(2 * w);
  }
  const Confidence confidence = confidence_of({one, twice}, 0.9);
  EXPECT_EQ(confidence.plans[0].low, 5);
  EXPECT_EQ(confidence.plans[0].high, 95);
  EXPECT_EQ(confidence.plans[1].low, 10);
  EXPECT_DOUBLE_EQ(confidence.plans[1].difference_low, 1);
  EXPECT_DOUBLE_EQ(confidence.plans[1].difference_high, 1);
  EXPECT_EQ(confidence.plans[0].difference_high, 0);
}

// ---- of rankings

TEST(ErrorBars, CommonCausesCancelInDifferences) {
  // All that is unsure is how fast A is: plans on A alone move together.
  const UncertainRanking r = rank_uncertain(
      {.bandwidth = "1kbps", .kernels = 0, .spreads = {{{"A", 0.1}, {"B", 0}, {"C", 0}}, {}, 0}}, {.confidence = 0.9});
  const Confidence& confidence = r.ranking.confidence.value();
  size_t on_a = 0;
  for (size_t p = 0; p < r.ranking.judged.size(); ++p) {
    const Plan& plan = r.ranking.judged[p].plan;
    if (!is_single(plan) || plan.stages[0].devices[0] != DeviceId(0)) continue;
    ++on_a;
    const ErrorBar& bar = confidence.plans[p];
    const double cost = cost_of(r.ranking, r.ranking.judged[p].estimate);
    EXPECT_LT(bar.low, cost * 0.85);
    EXPECT_GT(bar.high, cost * 1.15);
    EXPECT_NEAR(bar.difference_low, bar.difference_high, 1e-9);
  }
  EXPECT_EQ(on_a, 4u) << "micro-batch counts";
  // Half of the worlds are within the spread: the t distribution's quantile is the one the spread is.
  const std::vector<std::vector<double>> costs =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {.count = 4000});
  const double cost = cost_of(r.ranking, r.ranking.judged[0].estimate);
  size_t within = 0;
  for (const double c : costs[0]) within += c / cost < 1.1 && cost / c < 1.1 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(within) / 4000, 0.5, 0.03);
}

// Nothing else is unsure, and no validation of the scenario says how far plans are off: half of them by so much.
TEST(ErrorBars, PlansAreOffAsInOtherValidations) {
  const UncertainRanking r =
      rank_uncertain({.kernels = 0, .spreads = {{{"A", 0}, {"B", 0}, {"C", 0}}, {}, {}}}, {.confidence = 0.9});
  const std::vector<std::vector<double>> costs =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {.count = 4000});
  const double cost = cost_of(r.ranking, r.ranking.judged[0].estimate), most = 1 + usual_plan_spread;
  const auto within = std::ranges::count_if(costs[0], [&](double c) { return c / cost < most && cost / c < most; });
  EXPECT_NEAR(static_cast<double>(within) / 4000, 0.5, 0.03);
}

TEST(ErrorBars, ADeviceThatIsNoBottleneckMovesNothing) {
  // B is ten times as slow as A and has most of the work in plans over both.
  const UncertainRanking r = rank_uncertain({.compute_b = "6GFLOPS",
                                             .bandwidth = "100Gbps",
                                             .latency = "1us",
                                             .more = "plans: {mine: [..relu1@A, rest@B]}",
                                             .kernels = 0,
                                             .spreads = {{{"A", 0}, {"B", 0.1}, {"C", 0.1}}, {}, 0}});
  const std::vector<std::vector<double>> costs =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {.count = 200});
  for (size_t p = 0; p < costs.size(); ++p) {
    const double cost = cost_of(r.ranking, r.ranking.judged[p].estimate);
    const auto [low, high] = std::ranges::minmax(costs[p]);
    const Plan& plan = r.ranking.judged[p].plan;
    if (is_single(plan) && plan.stages[0].devices[0] == DeviceId(0)) {
      EXPECT_NEAR(low, cost, 1e-9 * cost);
      EXPECT_NEAR(high, cost, 1e-9 * cost);
    } else if (plan.name == "mine") {
      // Twice as fast a B leaves A and the links, which take their time.
      EXPECT_GT(high / cost, 1.3) << plan.micro_batches;
      EXPECT_GT(low / cost, 0.05);
    }
  }
}

TEST(ErrorBars, TheSameOnAnyNumberOfCores) {
  const UncertainScrews screws{.messages_error = 0.2, .spreads = {{}, {}, 0.02}};
  const UncertainRanking r = rank_uncertain(screws, {.error_bars = true});
  const auto costs_on = [&](size_t workers, uint64_t seed) {
    return costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares,
                           {.count = 100, .seed = seed, .workers = workers});
  };
  EXPECT_EQ(costs_on(1, 1), costs_on(3, 1));
  EXPECT_NE(costs_on(1, 1), costs_on(1, 2));
  // The first worlds do not depend on how many there are.
  const std::vector<std::vector<double>> more =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {.count = 130});
  EXPECT_EQ(std::vector<double>(more[3].begin(), more[3].begin() + 100), costs_on(1, 1)[3]);
  // And they are those of the ranking.
  const std::vector<std::vector<double>> all =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {});
  EXPECT_EQ(confidence_of(all, 0.9).set, r.ranking.confidence.value().set);
}

TEST(ErrorBars, PlansThatAreAlikeShareTheirOwnErrors) {
  const UncertainRanking r = rank_uncertain({.kernels = 0, .spreads = {{}, {}, 0.05}});
  const std::vector<std::vector<double>> costs =
      costs_in_worlds(r.scenario, r.ranking.goal, r.ranking.judged, r.lowered, r.ranking.node_shares, {.count = 400});
  // Mean squares of log errors, and of their differences.
  const auto error = [&](size_t p, size_t w) {
    return std::log(costs[p][w] / cost_of(r.ranking, r.ranking.judged[p].estimate));
  };
  size_t same = 0, other = 0;
  for (size_t a = 0; a < costs.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const Plan &x = r.ranking.judged[a].plan, &y = r.ranking.judged[b].plan;
      double squares = 0, differences = 0;
      for (size_t w = 0; w < costs[a].size(); ++w) {
        squares += (error(a, w) * error(a, w) + error(b, w) * error(b, w)) / 2;
        differences += (error(a, w) - error(b, w)) * (error(a, w) - error(b, w));
      }
      const double shared = 1 - differences / squares / 2;  // part of the variance
      if (x.micro_batches != y.micro_batches) {
        ++other;
        EXPECT_NEAR(shared, 0, 0.35) << r.ranking.judged[a].text << ", " << r.ranking.judged[b].text;
        continue;
      }
      double work = 0;
      for (size_t n = 0; n < r.ranking.node_shares.size(); ++n) {
        const auto stage_of = [&](const Plan& plan) {
          return std::ranges::find_if(plan.stages, [&](const Stage& s) { return s.begin <= n && n < s.end; });
        };
        if (stage_of(x)->devices == stage_of(y)->devices) work += r.ranking.node_shares[n];
      }
      ++same;
      EXPECT_NEAR(shared, work, 0.35) << r.ranking.judged[a].text << ", " << r.ranking.judged[b].text;
    }
  }
  EXPECT_GT(same, 10u);
  EXPECT_GT(other, 10u);
}

TEST(ErrorBars, WithoutSpreadsThereAreNone) {
  const Ranked without = rank({}, {.error_bars = true});
  EXPECT_FALSE(without.ranking.confidence.has_value());
  EXPECT_EQ(without.ranking.no_error_bars, "costs are not measured");
  EXPECT_EQ(rank().ranking.no_error_bars, "") << "nobody asked";
  const auto refused = rank_plans(without.scenario, without.model, {.confidence = 0.9});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("costs are not measured"), HasSubstr("nlbench profile"), HasSubstr("--recalibrate")));

  Scenario half = without.scenario;
  half.spreads.computing["A"] = 0.05;
  EXPECT_EQ(rank_plans(half, without.model, {.error_bars = true})->no_error_bars, "costs of B are not measured");
  half.spreads.computing["B"] = 0.05;
  const Ranking learnt = rank_plans(half, without.model, {.error_bars = true}).value();
  ASSERT_TRUE(learnt.confidence.has_value()) << "a validation taught the spreads of rooflines";
  EXPECT_EQ(learnt.confidence->level, 0.9);
  EXPECT_EQ(learnt.confidence->plans.size(), learnt.judged.size());
}

}  // namespace
}  // namespace nlsplit
