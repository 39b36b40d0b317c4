// What is said of each kept plan, and the objectives plans are ordered by.
#include "ranking/explain.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "ranking/evaluate.h"
#include "ranking/scaled_links.h"
#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;

TEST(Explain, OnlyIfAskedFor) { EXPECT_TRUE(rank().ranking.explanations.empty()); }

TEST(Explain, EveryKeptPlanInTheUsersOrder) {
  const Ranked ranked = rank({.compute = "100MFLOPS", .search = "{keep: 7}"}, {.explain = true});
  const std::vector<size_t> top = kept(ranked.ranking);
  ASSERT_EQ(ranked.ranking.explanations.size(), top.size());
  for (size_t i = 0; i < top.size(); ++i) {
    const Explanation& why = ranked.ranking.explanations[i];
    const Estimate& e = ranked.ranking.judged[top[i]].estimate;
    EXPECT_EQ(why.plan, top[i]);
    const bool link = why.bottleneck == Explanation::Bottleneck::link;
    EXPECT_EQ(why.name, link ? e.busiest_link : e.busiest_device);
    EXPECT_EQ(why.share, link ? e.busiest_link_share : e.busiest_device_share);
    EXPECT_GT(why.fullest_share, 0);
    EXPECT_LE(why.fullest_share, 1);
  }
}

TEST(Explain, ASlowLinkIsTheBottleneck) {
  const Ranked ranked = rank({.bandwidth = "1Mbps", .search = "{keep: 50}"}, {.explain = true});
  size_t links = 0;
  for (const Explanation& why : ranked.ranking.explanations) {
    if (why.bottleneck != Explanation::Bottleneck::link) continue;
    ++links;
    EXPECT_GT(why.share, 0.9);
    EXPECT_THAT(why.name, ::testing::HasSubstr("a"));
  }
  EXPECT_GT(links, 0u);
}

// At its break-even a plan is just clearly faster than one device; a little below it is not. By the same timing.
TEST(Explain, BreakEvenIsWhereItSays) {
  const Ranked ranked = rank({.latency = "1ms", .compute = "100MFLOPS", .search = "{keep: 30}"}, {.explain = true});
  const CostTable costs = cost_table(ranked.scenario, ranked.model.graph.name);
  const auto lowered = [&](size_t i) {
    const Plan& plan = ranked.ranking.judged[i].plan;
    const PreparedModel prepared = prepare_model(ranked.scenario, ranked.model.graph, plan.micro_batches).value();
    return lower_plan(ranked.scenario, prepared, plan, costs).value();
  };
  const LoweredPlan single = lowered(ranked.ranking.verdict.throughput.single.value());
  size_t bandwidths = 0, latencies = 0;
  for (const Explanation& why : ranked.ranking.explanations) {
    const LoweredPlan plan = lowered(why.plan);
    const auto wins = [&](const ScaledLinks& links) {
      return makespan_over(plan, links) < makespan_over(single, links) / clearly_faster;
    };
    if (why.break_even_bandwidth) {
      ++bandwidths;
      EXPECT_TRUE(wins({.bandwidth = *why.break_even_bandwidth * 1.01}));
      EXPECT_FALSE(wins({.bandwidth = *why.break_even_bandwidth / 1.01}));
    }
    if (why.break_even_latency) {
      ++latencies;
      EXPECT_TRUE(wins({.latency = *why.break_even_latency / 1.01}));
      EXPECT_FALSE(wins({.latency = *why.break_even_latency * 1.01}));
    }
  }
  EXPECT_GT(bandwidths, 0u);
  EXPECT_GT(latencies, 0u);
}

TEST(ScaledLinks, TodaysLinksChangeNothing) {
  const Ranked ranked = rank();
  const CostTable costs = cost_table(ranked.scenario, ranked.model.graph.name);
  const Plan& plan = ranked.ranking.judged[0].plan;
  const PreparedModel prepared = prepare_model(ranked.scenario, ranked.model.graph, plan.micro_batches).value();
  const LoweredPlan lowered = lower_plan(ranked.scenario, prepared, plan, costs).value();
  EXPECT_DOUBLE_EQ(makespan_over(lowered, {}), estimate_fast(ranked.scenario, lowered).makespan_s);
  EXPECT_LE(makespan_over(lowered, no_network), makespan_over(lowered, {}));
}

TEST(ScaledLinks, ChangesAreFoundFromBothSides) {
  EXPECT_NEAR(where_it_changes([](double f) { return f > 3; }, true).value(), 3, 0.01);
  EXPECT_NEAR(where_it_changes([](double f) { return f < 0.5; }, false).value(), 0.5, 0.001);
  EXPECT_FALSE(where_it_changes([](double) { return true; }, true));
  EXPECT_FALSE(where_it_changes([](double) { return false; }, false));
}

TEST(Objectives, AWeightedOneIsRelativeToTheBestSingleDevice) {
  const Ranking ranking =
      rank({.compute = "1GFLOPS", .search = "{objective: {throughput: 0.7, latency: 0.3}}"}).ranking;
  ASSERT_EQ(ranking.objective, Objective::weighted);
  double makespan = std::numeric_limits<double>::infinity(), latency = makespan;
  for (const RankedPlan& plan : ranking.judged) {
    if (plan.plan.stages.size() > 1 || plan.plan.stages[0].devices.size() > 1) continue;
    makespan = std::min(makespan, plan.estimate.makespan_s);
    latency = std::min(latency, plan.estimate.latency_mean_s);
  }
  const auto expected = [&](const Estimate& e) {
    return 0.7 * e.makespan_s / makespan + 0.3 * e.latency_mean_s / latency;
  };
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    EXPECT_NEAR(cost_of(ranking, ranking.judged[i].estimate), expected(ranking.judged[i].estimate), 1e-12);
    if (i > 0) {
      EXPECT_GE(expected(ranking.judged[i].estimate) * as_good, expected(ranking.judged[i - 1].estimate) - 1e-12);
    }
  }
}

TEST(Objectives, OneWeightAloneIsThatObjective) {
  const auto order = [](const std::string& objective) {
    std::vector<std::string> texts;
    for (const RankedPlan& plan : rank({.search = "{objective: " + objective + "}"}).ranking.judged)
      texts.push_back(fmt::format("{} {}", plan.text, plan.plan.micro_batches));
    return texts;
  };
  EXPECT_EQ(order("{latency: 2}"), order("latency"));
  EXPECT_EQ(order("{throughput: 1, latency: 0}"), order("throughput"));
}

TEST(Limits, DevicesAndMemory) {
  for (const RankedPlan& plan : rank({.search = "{limits: {devices: 1}}", .plans = "{}"}).ranking.judged) {
    EXPECT_EQ(plan.plan.stages.size(), 1u);
    EXPECT_EQ(plan.plan.stages[0].devices.size(), 1u);
  }
  // fc1's weights alone are 1 MiB.
  const Ranking modest = rank({.search = "{limits: {memory: 2MiB}}", .plans = "{}"}).ranking;
  for (const RankedPlan& plan : modest.judged) EXPECT_LE(plan.estimate.largest_memory, bytes(2 << 20));
}

TEST(Methods, AllFindTheSameBestInASmallSpace) {
  const double best = rank().ranking.judged[0].estimate.makespan_s;
  for (const std::string method : {"exhaustive", "dp", "beam", "anneal"}) {
    const Ranking ranking = rank({.search = "{method: " + method + "}"}).ranking;
    EXPECT_NEAR(ranking.judged[0].estimate.makespan_s, best, best * 0.02) << method;
  }
}

// Plans split inside their layers come in if asked for, and are judged like all others.
TEST(SplitPlans, AreRankedAmongTheOthers) {
  Scenario scenario = small_scenario({.compute = "100MFLOPS", .plans = "{}"});
  scenario.search.axes = {SplitAxis::batch, SplitAxis::height, SplitAxis::channels};
  const Model model = load_model(scenario).value();
  const Ranking ranking = rank_plans(scenario, model, {.explain = true}).value();
  EXPECT_GT(ranking.split_inside, 10u);
  EXPECT_LT(ranking.left_out, ranking.split_inside) << ranking.why_left_out;
  size_t split = 0;
  for (const RankedPlan& plan : ranking.judged) split += has_splits(plan.plan);
  EXPECT_GT(split, 0u);
  scenario.search.axes.clear();
  const Ranking without = rank_plans(scenario, model, {}).value();
  EXPECT_EQ(without.split_inside, 0u);
  // The first has the most room of those within 0.5 %.
  const auto fastest = [](const Ranking& of) {
    return std::ranges::min(of.judged, {}, [](const RankedPlan& plan) { return plan.estimate.makespan_s; });
  };
  EXPECT_LE(fastest(ranking).estimate.makespan_s, fastest(without).estimate.makespan_s * (1 + 1e-9));
}

}  // namespace
}  // namespace nlsplit
