// Rankings under noise.
#include <gmock/gmock.h>

#include <algorithm>

#include "ranking/noise_runs.h"
#include "ranking/small_scenario.h"
#include "sim/fast.h"
#include "testing/paths.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

Ranking rank_with(const Noise& noise, const RankOptions& options, const Screws& screws = {}) {
  Scenario scenario = small_scenario(screws);
  scenario.noise = noise;
  auto model = load_model(scenario);
  EXPECT_TRUE(model.ok());
  auto ranking = rank_plans(scenario, *model, options);
  EXPECT_TRUE(ranking.ok()) << ranking.error().to_string();
  return std::move(ranking).value();
}

Noise jittery() {
  Noise noise;
  noise.runs = 5;
  noise.compute_jitter = 0.2;
  noise.link_jitter = 0.2;
  return noise;
}

std::string figures(const Ranking& ranking, size_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(count, ranking.judged.size()); ++i) {
    const RankedPlan& plan = ranking.judged[i];
    const NoisyEstimate& n = plan.noisy.value();
    text += fmt::format("{} {} {} {} {} {}\n", plan.text, plan.plan.micro_batches, n.makespan_s.mean, n.makespan_s.p95,
                        n.latency_s.mean, n.latency_s.p95_run);
  }
  return text;
}

TEST(SpreadOf, IsTheNearestRank) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back((i * 7) % 40);  // 0 … 39 in another order
  const Spread spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.mean, 19.5);
  EXPECT_EQ(spread.p95, 37);  // the 38th of 40
  EXPECT_EQ(values[static_cast<size_t>(spread.p95_run)], 37);
  EXPECT_EQ(spread_of({3, 9, 1}).p95, 9);
  EXPECT_EQ(spread_of({4}).p95, 4);
}

TEST(NoiseRanking, SameBitsWhateverIsAskedFor) {
  const Ranking once = rank_with(jittery(), {.noise = true});
  EXPECT_EQ(once.noise_runs, 5);
  EXPECT_FALSE(once.robust);
  EXPECT_EQ(figures(once, 99), figures(rank_with(jittery(), {.noise = true}), 99));
  EXPECT_EQ(figures(once, 99), figures(rank_with(jittery(), {.robust = true}), 99));
  EXPECT_EQ(figures(once, 5), figures(rank_with(jittery(), {.noise = true}, {.search = "{keep: 1}"}), 5));
  Noise other = jittery();
  other.seed = 2;
  EXPECT_NE(figures(once, 99), figures(rank_with(other, {.noise = true}), 99));
}

// Plans without their noise, and their order, are those of a scenario without noise.
TEST(NoiseRanking, LeavesTheOrderAlone) {
  const Ranking with = rank_with(jittery(), {.noise = true}), without = rank().ranking;
  const Ranking not_asked_for = rank_with(jittery(), {});
  ASSERT_EQ(with.judged.size(), without.judged.size());
  for (size_t i = 0; i < with.judged.size(); ++i) {
    EXPECT_EQ(with.judged[i].text, without.judged[i].text);
    EXPECT_EQ(with.judged[i].estimate.makespan_s, without.judged[i].estimate.makespan_s);
    EXPECT_EQ(with.order[i], i);
    EXPECT_FALSE(without.judged[i].noisy.has_value());
    EXPECT_FALSE(not_asked_for.judged[i].noisy.has_value());
    const NoisyEstimate& n = with.judged[i].noisy.value();
    EXPECT_LE(n.makespan_s.mean, n.makespan_s.p95);
    EXPECT_LE(n.latency_s.mean, n.latency_s.p95);
  }
}

// B always takes five times as long: without noise the fastest plan uses it, with noise A alone is better.
TEST(NoiseRanking, RobustOrderIsByP95) {
  Noise noise;
  noise.runs = 1;
  noise.stragglers.push_back({.device = DeviceId(1), .slowdown = 5});
  const Ranking ranking = rank_with(noise, {.robust = true}, {.compute = "100MFLOPS"});
  EXPECT_TRUE(ranking.robust);
  EXPECT_NE(ranking.order[0], 0u);
  EXPECT_THAT(ranking.judged[0].text, HasSubstr("B"));
  EXPECT_EQ(ranking.judged[ranking.order[0]].text, "A all");
  double last = 0;
  for (const size_t i : ranking.order) {
    EXPECT_GE(ranking.judged[i].noisy->makespan_s.p95, last);
    last = ranking.judged[i].noisy->makespan_s.p95;
  }
  std::vector<size_t> sorted = ranking.order;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], i);
  // A plan that does not use B does not notice.
  for (const RankedPlan& plan : ranking.judged) {
    if (plan.text == "A all") {
      EXPECT_EQ(plan.noisy->makespan_s.p95, plan.estimate.makespan_s);
    }
  }
}

// What scenarios/unsteady.yaml says of itself: the best on a good day counts on B, the best on a bad day has B do
// little or nothing.
TEST(NoiseRanking, TheBundledScenarioShowsTheDifference) {
  auto scenario = read_scenario(NLS_SOURCE_DIR "/scenarios/unsteady.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().to_string();
  const auto model = load_model(*scenario);
  ASSERT_TRUE(model.ok());
  const auto ranking = rank_plans(*scenario, *model, {.robust = true});
  ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
  const RankedPlan &plain = ranking->judged[0], &robust = ranking->judged[ranking->order[0]];
  const auto share_of_b = [](const RankedPlan& plan) {
    double share = 0;
    for (const DeviceEstimate& device : plan.estimate.devices) share += device.name == "B" ? device.share : 0;
    return share;
  };
  EXPECT_GT(share_of_b(plain), 0.8);
  EXPECT_LT(share_of_b(robust), 0.4);
  EXPECT_GT(plain.estimate.throughput, robust.estimate.throughput * 1.1);
  EXPECT_GT(plain.noisy->makespan_s.p95, robust.noisy->makespan_s.p95 * 1.5);
}

// The order for latency is by the p95 of latency.
TEST(NoiseRanking, RobustOrderFollowsTheObjective) {
  const Ranking ranking = rank_with(jittery(), {.robust = true}, {.search = "{objective: latency}"});
  double last = 0;
  for (const size_t i : ranking.order) {
    EXPECT_GE(ranking.judged[i].noisy->latency_s.p95, last);
    last = ranking.judged[i].noisy->latency_s.p95;
  }
}

// An interrupt between runs leaves every plan with as many, and they are the first of all.
TEST(NoiseRanking, AnInterruptKeepsWholeRuns) {
  const Ranking all = rank_with(jittery(), {.noise = true});
  bool simulating = false;
  size_t done = 0;
  RankOptions options{.noise = true};
  options.progress = [&](std::string_view phase, size_t i, size_t) {
    simulating = phase == "simulating with noise";
    done = i;
  };
  const size_t plans = all.judged.size();
  options.interrupted = [&] { return simulating && done >= 3 * plans + 2; };
  const Ranking some = rank_with(jittery(), options);
  EXPECT_EQ(some.noise_runs, 3);
  EXPECT_EQ(some.judged.size(), plans);
  EXPECT_FALSE(some.interrupted);
  Noise three = jittery();
  three.runs = 3;
  EXPECT_EQ(figures(some, 99), figures(rank_with(three, {.noise = true}), 99));
  options.interrupted = [&] { return simulating; };  // before the first run is complete
  const Ranking none = rank_with(jittery(), options);
  EXPECT_EQ(none.noise_runs, 0);
  EXPECT_FALSE(none.judged[0].noisy.has_value());
}

TEST(NoiseRanking, RobustNeedsNoise) {
  const Scenario scenario = small_scenario();
  const auto ranking = rank_plans(scenario, *load_model(scenario), {.robust = true});
  ASSERT_FALSE(ranking.ok());
  EXPECT_EQ(
      ranking.error().to_string(),
      "small.yaml: an order by what 95 of 100 runs reach needs noise, and this scenario has none: add e.g. noise: "
      "{compute: {jitter: 5%}}");
  EXPECT_EQ(exit_code(ranking.error()), 2);
}

// The run that is the p95 can be looked at.
TEST(NoiseRanking, TimePlanShowsARun) {
  const Ranking ranking = rank_with(jittery(), {.noise = true});
  Scenario scenario = small_scenario();
  const Model model = *load_model(scenario);
  const RankedPlan& plan = ranking.judged[3];
  EXPECT_FALSE(time_plan(scenario, model.graph, plan.plan, 0).ok());
  scenario.noise = jittery();
  const Spread& makespan = plan.noisy->makespan_s;
  const auto timed = time_plan(scenario, model.graph, plan.plan, makespan.p95_run);
  ASSERT_TRUE(timed.ok()) << timed.error().to_string();
  EXPECT_EQ(timed->estimate.makespan_s, makespan.p95);
  EXPECT_EQ(timed->trace.makespan, makespan.p95);
  EXPECT_THAT(time_plan(scenario, model.graph, plan.plan, 5).error().message, HasSubstr("runs 1 … 5"));
}

// The fast tier sees no sharing of links: it may judge, without noise of links.
TEST(NoiseRanking, ATierThatSharesNoLinksKnowsNoNoiseOfThem) {
  Scenario scenario = small_scenario();
  const Model model = *load_model(scenario);
  scenario.noise = jittery();
  const auto by_fast = rank_plans(scenario, model, {.tier = &fast_tier(), .noise = true});
  ASSERT_TRUE(by_fast.ok()) << by_fast.error().to_string();
  EXPECT_EQ(by_fast->tier, &fast_tier());
  const Plan& best = by_fast->judged[0].plan;
  EXPECT_EQ(by_fast->judged[0].estimate.makespan_s,
            time_plan(scenario, model.graph, best, std::nullopt, nullptr, fast_tier())->estimate.makespan_s);
  EXPECT_LE(by_fast->judged[0].estimate.makespan_s,
            time_plan(scenario, model.graph, best)->estimate.makespan_s * (1 + 1e-9));
  scenario.noise->background.push_back({LinkId(0), 0.5, 1e-3, 1e-3});
  const std::string refused = "its noise disturbs links, which the tier 'fast' does not see: take tier simgrid";
  EXPECT_THAT(rank_plans(scenario, model, {.tier = &fast_tier(), .noise = true}).error().message, HasSubstr(refused));
  EXPECT_THAT(time_plan(scenario, model.graph, best, 0, nullptr, fast_tier()).error().message, HasSubstr(refused));
}

TEST(Ranking, PartsOfDevicesAddUp) {
  for (const RankedPlan& plan : rank().ranking.judged) {
    for (const DeviceEstimate& device : plan.estimate.devices) {
      const DeviceBreakdown& parts = device.breakdown;
      EXPECT_NEAR(parts.computing + parts.exposed_communication + parts.waiting, plan.estimate.makespan_s,
                  1e-9 * plan.estimate.makespan_s);
      EXPECT_NEAR(parts.computing, device.share * plan.estimate.makespan_s, 1e-9 * plan.estimate.makespan_s);
    }
    double busiest = 0;
    for (const LinkEstimate& link : plan.estimate.links) busiest = std::max(busiest, link.use.utilisation);
    EXPECT_NEAR(busiest, plan.estimate.busiest_link_share, 1e-9);
  }
}

}  // namespace
}  // namespace nlsplit
