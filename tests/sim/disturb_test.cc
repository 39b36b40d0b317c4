// Noise: what it does to a TimedGraph, by hand, and that its draws are what they should be.
#include "sim/disturb.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "sim/cases.h"

namespace nlsplit::testing {
namespace {

NoiseKeys keys_of(const Case& one) { return noise_keys(one.program, one.dependencies, one.graph, one.cluster); }

TimedGraph disturbed(const Case& one, const Noise& noise, int run = 0) {
  TimedGraph graph = one.graph;
  disturb(graph, noise, one.cluster, keys_of(one), run);
  return graph;
}

Timing simgrid_timing(const Case& one, const TimedGraph& graph) {
  auto timings = simulate_all(simgrid_tier(), one.cluster, {&graph});
  EXPECT_TRUE(timings.ok()) << timings.error().to_string();
  return timings.ok() ? timings->front() : Timing{};
}

Timing fast_timing(const TimedGraph& graph) {
  Timing timing;
  simulate_fast(graph, timing);
  return timing;
}

Case two_stages(int micro_batches) { return make_case(text_of({{1000, 1000}, micro_batches}), chain(2, 2 * ms)); }

// A copies for 1 ms, the message takes 1 + 2 ms, B copies for 1 ms. B is three times as slow from 4.5 ms on.
TEST(Disturb, AStragglerByHand) {
  const Case one = two_stages(1);
  Noise noise;
  noise.stragglers.push_back({.device = DeviceId(1), .slowdown = 3, .from = 4.5 * ms});
  const TimedGraph graph = disturbed(one, noise);
  for (const Timing& timing : {fast_timing(graph), simgrid_timing(one, graph)})
    expect_near_relative(timing.makespan, (4.5 + 0.5 * 3) * ms, 1e-9, "half of it at a third of the speed");
  noise.stragglers[0].until = 5.1 * ms;  // 0.6 ms do 0.2 ms of work
  for (const Timing& timing : {fast_timing(disturbed(one, noise)), simgrid_timing(one, disturbed(one, noise))})
    expect_near_relative(timing.makespan, (5.1 + 0.3) * ms, 1e-9, "and on at its own");
}

// The message's 4000 B begin at 1 ms at 4 MB/s. From 1.5 ms on the link has 0.5 MB/s: the other 2000 B take 4 ms.
TEST(Disturb, ALinkThatDegradesByHand) {
  const Case one = two_stages(1);
  Noise noise;
  noise.degradations.push_back({LinkId(0), bytes_per_second(0.5e6), 1.5 * ms});
  expect_near_relative(simgrid_timing(one, disturbed(one, noise)).makespan, (1.5 + 4 + 2 + 1) * ms, 1e-9, "degraded");
  noise.degradations[0].until = 3.5 * ms;  // 1000 B in 2 ms, then 1000 B in 0.25 ms
  expect_near_relative(simgrid_timing(one, disturbed(one, noise)).makespan, (3.5 + 0.25 + 2 + 1) * ms, 1e-9,
                       "and recovered");
  noise.background.push_back({LinkId(0), 0.5});  // 1000 B until 1.5 ms, 500 B until 3.5 ms, 2500 B at 2 MB/s
  expect_near_relative(simgrid_timing(one, disturbed(one, noise)).makespan, (3.5 + 1.25 + 2 + 1) * ms, 1e-9,
                       "and shared");
  noise.degradations[0].to = bytes_per_second(4);  // a millionth: almost nothing passes
  EXPECT_EQ(fast_timing(disturbed(one, noise)).makespan, fast_timing(one.graph).makespan)
      << "the fast tier looks at no links";
  noise.degradations[0].until = for_ever;
  expect_near_relative(simgrid_timing(one, disturbed(one, noise)).makespan, 1.5 * ms + 3000 / 2.0 + 3 * ms, 1e-9,
                       "slow");
}

// A sender that is done with a message before it is all sent is done by as much earlier or later.
TEST(Disturb, JitterScalesAllOfAMessage) {
  Case one = two_stages(5);
  for (Activity& activity : one.graph.activities) {
    if (!activity.is_transfer) continue;
    activity.request = 0.1 * activity.duration;
    activity.handover = 0.4 * activity.duration;
    activity.queued = 0.8 * activity.duration;
  }
  Noise noise;
  noise.link_jitter = 0.5;
  const TimedGraph graph = disturbed(one, noise);
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const Activity &now = graph.activities[i], &before = one.graph.activities[i];
    if (!now.is_transfer) continue;
    EXPECT_NE(now.duration, before.duration);
    EXPECT_NEAR(now.until_released() / now.duration, 0.5, 1e-12);
    EXPECT_NEAR(now.queued / now.duration, 0.8, 1e-12);
  }
}

// A change of a link that nobody uses, and one after the end, change nothing.
TEST(Disturb, WhatNobodyMeetsChangesNothing) {
  const Case one = make_case(text_of({{1000, 1000}, 3}), chain(3, 2 * ms));
  Noise noise;
  noise.degradations.push_back({LinkId(1), bytes_per_second(1), 0});
  noise.degradations.push_back({LinkId(0), bytes_per_second(1), 10});
  noise.stragglers.push_back({.device = DeviceId(2), .slowdown = 9});
  noise.background.push_back({LinkId(1), 0.9, 1e-3, 1e-3});
  expect_same(simgrid_timing(one, disturbed(one, noise)), simgrid_timing(one, one.graph), 1e-12, "undisturbed");
}

// Contended or not, disturbed or not: the tiers agree about devices and messages where no link is shared.
TEST(Disturb, TiersAgreeOnJitterAndStragglers) {
  for (int run = 0; run < 20; ++run) {
    const Case one = make_case(text_of({{1000, 700, 1300}, 6}), chain(3, 0.5 * ms));
    Noise noise;
    noise.compute_jitter = 0.3;
    noise.link_jitter = 0.5;
    noise.stragglers.push_back({.slowdown = 2, .from = 2 * ms, .until = 7 * ms, .chance = 0.5});
    const TimedGraph graph = disturbed(one, noise, run);
    // SimGrid counts parts of bytes: half of one for each message is what it may be off.
    expect_same(simgrid_timing(one, graph), fast_timing(graph), 1e-7, fmt::format("run {}", run));
  }
}

TEST(Disturb, JitterHasTheMeanAndTheDeviationItSays) {
  const Case one = two_stages(2000);
  Noise noise;
  noise.compute_jitter = 0.2;
  noise.link_jitter = 0.4;
  const TimedGraph graph = disturbed(one, noise);
  double sum[2] = {}, squares[2] = {};
  size_t count[2] = {};
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const double factor = graph.activities[i].duration / one.graph.activities[i].duration;
    const size_t kind = graph.activities[i].is_transfer ? 1 : 0;
    EXPECT_GT(factor, 0);
    sum[kind] += factor;
    squares[kind] += factor * factor;
    ++count[kind];
    if (kind == 0) continue;
    EXPECT_DOUBLE_EQ(graph.activities[i].latency, factor * one.graph.activities[i].latency);
    EXPECT_NEAR(graph.activities[i].bytes, factor * one.graph.activities[i].bytes, 1e-9);
  }
  ASSERT_EQ(count[0], 4000u);
  ASSERT_EQ(count[1], 2000u);
  for (const size_t kind : {size_t{0}, size_t{1}}) {
    const double n = static_cast<double>(count[kind]), wanted = kind == 0 ? 0.2 : 0.4;
    const double mean = sum[kind] / n, deviation = std::sqrt(squares[kind] / n - mean * mean);
    EXPECT_NEAR(mean, 1, 4 * wanted / std::sqrt(n));
    EXPECT_NEAR(deviation, wanted, 0.1 * wanted);  // its own deviation is about 2 % here
  }
}

// The same run, seed and thing: the same draw, whatever else is in the plan. Another of any: another draw.
TEST(Disturb, DrawsDependOnWhatTheyAreForOnly) {
  const Case two = two_stages(4), three = make_case(text_of({{1000, 500, 700}, 8}), chain(3, 2 * ms));
  Noise noise;
  noise.compute_jitter = noise.link_jitter = 0.3;
  const auto factor = [&](const Case& one, const char* device, int slot, int instr, int run) {
    const size_t i = activity_of(one, device, slot, instr);
    return disturbed(one, noise, run).activities[i].duration / one.graph.activities[i].duration;
  };
  for (const int micro_batch : {0, 3}) {
    EXPECT_DOUBLE_EQ(factor(two, "A", micro_batch, 0, 5), factor(three, "A", micro_batch, 0, 5));
    EXPECT_DOUBLE_EQ(factor(two, "B", micro_batch, 1, 5), factor(three, "B", micro_batch, 1, 5));
    EXPECT_DOUBLE_EQ(factor(two, "A", micro_batch, 1, 5), factor(three, "A", micro_batch, 1, 5));  // the message to B
  }
  std::set<double> different;
  for (const auto& [device, slot, instr] :
       {std::tuple{"A", 0, 0}, {"A", 0, 1}, {"A", 1, 0}, {"B", 0, 1}, {"B", 1, 1}}) {
    for (const int run : {0, 1}) different.insert(factor(two, device, slot, instr, run));
  }
  noise.seed = 2;
  different.insert(factor(two, "A", 0, 0, 0));
  EXPECT_EQ(different.size(), 11u);
  EXPECT_EQ(disturbed(two, noise, 3).activities[0].duration, disturbed(two, noise, 3).activities[0].duration);
}

TEST(Disturb, ChancesAreThoseOfRuns) {
  const Case one = two_stages(1);
  Noise noise;
  noise.stragglers.push_back({.slowdown = 2, .chance = 0.25});
  noise.degradations.push_back({LinkId(0), bytes_per_second(1e6), 0, for_ever, 0.5});
  constexpr int runs = 2000;
  int slow[2] = {}, both = 0, degraded = 0;
  const NoiseKeys keys = keys_of(one);
  for (int run = 0; run < runs; ++run) {
    TimedGraph graph = one.graph;
    disturb(graph, noise, one.cluster, keys, run);
    bool is_slow[2] = {};
    for (const size_t d : {size_t{0}, size_t{1}}) is_slow[d] = !graph.slowness.empty() && !graph.slowness[d].empty();
    slow[0] += is_slow[0] ? 1 : 0;
    slow[1] += is_slow[1] ? 1 : 0;
    both += is_slow[0] && is_slow[1] ? 1 : 0;
    degraded += graph.courses.empty() ? 0 : 1;
  }
  const auto deviation = [](double p) { return 4 * std::sqrt(p * (1 - p) / runs); };
  EXPECT_NEAR(slow[0] / double{runs}, 0.25, deviation(0.25));
  EXPECT_NEAR(slow[1] / double{runs}, 0.25, deviation(0.25));
  EXPECT_NEAR(both / double{runs}, 0.0625, deviation(0.0625));  // independently
  EXPECT_NEAR(degraded / double{runs}, 0.5, deviation(0.5));
}

// Kernels within a block stay where they are in it.
TEST(Disturb, TracesOfDisturbedRunsAreWhole) {
  const Case one = two_stages(5);
  Noise noise;
  noise.compute_jitter = 0.4;
  noise.stragglers.push_back({.device = DeviceId(0), .slowdown = 3, .from = 2 * ms});
  const TimedGraph graph = disturbed(one, noise, 2);
  const Timing timing = fast_timing(graph);
  const Trace trace = to_trace(one.program, one.dependencies, graph, timing);
  for (size_t a = 0; a < graph.activities.size(); ++a) {
    const Activity& activity = graph.activities[a];
    if (activity.is_transfer) continue;
    double end = timing.start[a];
    for (uint32_t m = 0; m < activity.count; ++m) {
      const Span& span = trace.spans[graph.members[activity.first_instance + m]];
      EXPECT_NEAR(span.start, end, 1e-15);
      EXPECT_LE(span.start, span.finish);
      end = span.finish;
    }
    EXPECT_EQ(end, timing.finish[a]);
  }
}

// As many at a time as there are, in whatever company: the same bits.
TEST(SimulateEach, DisturbsInTheChildAndKeepsTheOrder) {
  const Case one = two_stages(6);
  const NoiseKeys keys = keys_of(one);
  Noise noise;
  noise.compute_jitter = 0.2;
  noise.background.push_back({LinkId(0), 0.6, 1 * ms, 2 * ms});
  std::vector<double> makespans;
  const auto run = [&](size_t count, size_t stop_after) {
    makespans.clear();
    const Status status = simgrid_tier().simulate_each(
        count,
        [&](size_t i) {
          return Simulation{&one.graph, &one.cluster, [&, i](TimedGraph& graph) {
                              disturb(graph, noise, one.cluster, keys, static_cast<int>(i));
                            }};
        },
        [&](size_t i, const Timing& timing) {
          EXPECT_EQ(i, makespans.size());
          makespans.push_back(timing.makespan);
          return makespans.size() < stop_after;
        });
    EXPECT_TRUE(status.ok()) << status.error().to_string();
    return makespans;
  };
  const std::vector<double> all = run(9, 100);
  ASSERT_EQ(all.size(), 9u);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i], simgrid_timing(one, disturbed(one, noise, static_cast<int>(i))).makespan) << i;
  EXPECT_NE(all[0], all[1]);
  EXPECT_EQ(run(9, 4), std::vector<double>(all.begin(), all.begin() + 4));
  EXPECT_EQ(fast_timing(one.graph).makespan, fast_timing(two_stages(6).graph).makespan)
      << "the parent's graph is untouched";
}

}  // namespace
}  // namespace nlsplit::testing
