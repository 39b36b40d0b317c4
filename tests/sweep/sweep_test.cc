// Sweeps: known figures, points that cannot be, and no point lost or repeated whatever happens to the run.
#include "sweep/sweep.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ranking/evaluate.h"
#include "sweep/experiments.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

constexpr std::string_view zero_bubble =
    "pipeline: {devices: 4, micro_batches: 8, times: [20s, 20s, 20s]}\n"
    "axes: {schedule: [gpipe, zb_v], message: [0s, 1s]}\n";

TEST(SweepPipeline, HasThePublishedFigures) {
  const Scratch scratch;
  const Sweep sweep = sweep_of(experiment_of(std::string(zero_bubble)), {.csv = scratch / "p.csv"});
  // GPipe: (m + p - 1)(F + B) = 11 · 60, of which p - 1 idle. ZB-V on stages of 10: no bubble, with messages of 1 the
  // published 14.
  EXPECT_DOUBLE_EQ(figure(sweep, 0, "makespan_s"), 660);
  EXPECT_DOUBLE_EQ(figure(sweep, 0, "inner_bubble_s"), 180);
  EXPECT_DOUBLE_EQ(figure(sweep, 0, "bubble"), 3.0 / 11);
  EXPECT_EQ(cell(sweep, 0, "kept_micro_batches"), "8");
  EXPECT_NEAR(figure(sweep, 2, "inner_bubble_s"), 0, 1e-9);
  EXPECT_NEAR(figure(sweep, 3, "inner_bubble_s"), 14, 1e-9);
  EXPECT_EQ(cell(sweep, 0, "throughput_samples_per_s"), "");
  EXPECT_EQ(cell(sweep, 0, "busiest_link"), "");
}

TEST(SweepPipeline, WorkIsTheSameForEveryNumberOfStages) {
  const Scratch scratch;
  const Sweep sweep =
      sweep_of(experiment_of("pipeline: {devices: 2, micro_batches: 4, times: [1s, 1s, 1s], kept: 1kB}\n"
                             "axes: {schedule: [gpipe, interleaved, looped_bfs], stages: [2, 4, 8]}\n"),
               {.csv = scratch / "p.csv"});
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (cell(sweep, i, "status") != "ok") continue;
    EXPECT_NEAR(figure(sweep, i, "makespan_s") * (1 - figure(sweep, i, "bubble")), 4 * 3, 1e-9);
  }
  EXPECT_EQ(cell(sweep, 0, "peak_memory_bytes"), "4000");
}

TEST(SweepPipeline, OnlinePoliciesMeetTheSameJitter) {
  const Scratch scratch;
  const Sweep sweep = sweep_of(
      experiment_of("pipeline: {devices: 4, micro_batches: 8, times: [1s, 1s, 1s], message: 100ms}\n"
                    "axes:\n  schedule: [list, online: longest_path]\n  jitter: [0%, 50%]\n  straggler: {2: [1, 3]}\n"
                    "  seeds: 2\n"),
      {.csv = scratch / "p.csv"});
  const size_t each = sweep.rows.size() / 2;
  ASSERT_EQ(each, 2u + 2 * 2);
  for (size_t i = 0; i < each; ++i) {
    // The same slots took the same times: 8 micro-batches on 4 devices, whoever decided.
    const auto work = [&](size_t point) {
      return figure(sweep, point, "makespan_s") * (1 - figure(sweep, point, "bubble")) * 4;
    };
    EXPECT_NEAR(work(i), work(each + i), 1e-9 * work(i));
  }
  EXPECT_NEAR(figure(sweep, 1, "makespan_s") * (1 - figure(sweep, 1, "bubble")) * 4, 8 * (3 * 3 + 9), 1e-9);
  EXPECT_NE(cell(sweep, 2, "makespan_s"), cell(sweep, 3, "makespan_s"));  // seeds
}

TEST(SweepPipeline, SpeedsAreKnownBeforehandAndStragglersAreNot) {
  const Scratch scratch;
  const auto makespan = [&](const std::string& axes) {
    const Sweep sweep =
        sweep_of(experiment_of("pipeline: {devices: 4, micro_batches: 8, times: [1s, 1s, 1s]}\naxes: {" + axes + "}\n"),
                 {.csv = scratch / "p.csv", .fresh = true});
    return figure(sweep, 0, "makespan_s");
  };
  EXPECT_DOUBLE_EQ(makespan("schedule: [1f1b], device_speed: {1: [0.5]}"),
                   makespan("schedule: [1f1b], straggler: {1: [2]}"));  // 1F1B looks at no times
}

TEST(SweepPipeline, WhatCannotBeSaysWhy) {
  const Scratch scratch;
  const Sweep sweep = sweep_of(experiment_of("pipeline: {devices: 4, times: [1s, 1s, 1s], kept: 1kB, memory: 5kB}\n"
                                             "axes: {schedule: [interleaved, 1f1b, gpipe], micro_batches: [6, 8]}\n"),
                               {.csv = scratch / "p.csv"});
  EXPECT_EQ(cell(sweep, 0, "status"), "impossible");
  EXPECT_THAT(cell(sweep, 0, "reason"), HasSubstr("needs a multiple of 4 micro-batches"));
  EXPECT_EQ(cell(sweep, 0, "makespan_s"), "");
  EXPECT_EQ(cell(sweep, 2, "status"), "ok");
  EXPECT_EQ(cell(sweep, 4, "status"), "impossible");
  EXPECT_THAT(cell(sweep, 4, "reason"), HasSubstr("would be kept of 6 micro-batches"));
}

TEST(SweepScenario, IsWhatTheSimulatorSays) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario());
  const std::string text =
      "scenario: s.yaml\naxes: {schedule: [gpipe, 1f1b, zb_v], plan: [mine], micro_batches: [4], link_speed: [1, 0.5], "
      "device_speed: {B: [1, 2]}}\n";
  const Sweep fast = sweep_of(experiment_of(text, scratch / "e.yaml"), {.csv = scratch / "p.csv"});
  const Sweep simgrid =
      sweep_of(experiment_of("tier: simgrid\n" + text, scratch / "e.yaml"), {.csv = scratch / "q.csv"});
  ASSERT_EQ(fast.rows.size(), 12u);
  // The same by hand: the scenario written out, lowered and timed as a ranking does.
  const auto by_hand = [](const std::string& scenario_text) {
    Scenario scenario = parse_scenario(scenario_text, "s.yaml").value();
    scenario.plans[0].schedule = "1f1b";
    scenario.plans[0].micro_batches = {4};
    const Model model = load_model(scenario).value();
    const Plan plan = resolve_own_plan(scenario, model.graph, scenario.plans[0]).value()[0].plan;
    const PreparedModel prepared = prepare_model(scenario, model.graph, 4).value();
    const LoweredPlan lowered = lower_plan(scenario, prepared, plan, cost_table(scenario, model.graph.name)).value();
    return estimate_fast(scenario, lowered);
  };
  const Estimate plain = by_hand(training_scenario());
  EXPECT_DOUBLE_EQ(figure(fast, 4, "makespan_s"), plain.makespan_s);
  EXPECT_DOUBLE_EQ(figure(fast, 4, "throughput_samples_per_s"), plain.throughput);
  EXPECT_DOUBLE_EQ(figure(fast, 4, "latency_mean_s"), plain.latency_mean_s);
  EXPECT_EQ(cell(fast, 4, "busiest_device"), plain.busiest_device);
  EXPECT_EQ(cell(fast, 4, "peak_memory_bytes"), fmt::format("{}", plain.largest_memory.value()));
  EXPECT_DOUBLE_EQ(figure(fast, 6, "makespan_s"), by_hand(training_scenario("500Mbps")).makespan_s);
  const std::string quick_b = with(training_scenario("1Gbps", "", "20GFLOPS"), "1000GBps", "2000GBps");
  EXPECT_DOUBLE_EQ(figure(fast, 5, "makespan_s"), by_hand(quick_b).makespan_s);
  for (size_t i = 0; i < 8; ++i)  // two devices, whose messages meet nobody
    EXPECT_NEAR(figure(simgrid, i, "makespan_s"), figure(fast, i, "makespan_s"), 1e-6 * figure(fast, i, "makespan_s"));
  EXPECT_EQ(cell(fast, 8, "status"), "impossible");
  EXPECT_THAT(cell(fast, 8, "reason"), HasSubstr("schedule zb_v needs the stages in a V"));
}

TEST(SweepScenario, SeedsAreRunsOfTheNoise) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario("1Gbps", "noise: {seed: 7, compute: {jitter: 20%}, links: {jitter: 10%}}"));
  const std::string text =
      "scenario: s.yaml\naxes: {schedule: [1f1b], plan: [mine], micro_batches: [4], noise: [off, on], seed: [7, 8]}\n";
  for (const char* tier : {"tier: fast\n", "tier: simgrid\n"}) {
    const Sweep sweep =
        sweep_of(experiment_of(tier + text, scratch / "e.yaml"), {.csv = scratch / "p.csv", .fresh = true});
    ASSERT_EQ(sweep.rows.size(), 3u);
    EXPECT_EQ(cell(sweep, 0, "seed"), "");
    EXPECT_NE(cell(sweep, 1, "makespan_s"), cell(sweep, 0, "makespan_s"));
    EXPECT_NE(cell(sweep, 2, "makespan_s"), cell(sweep, 1, "makespan_s"));
  }
  // Run 1 of the scenario's own noise is the point with its seed.
  Scenario scenario = value_of(read_scenario(scratch / "s.yaml"));
  scenario.plans[0].schedule = "1f1b";
  scenario.plans[0].micro_batches = {4};
  const Model model = load_model(scenario).value();
  const Plan plan = resolve_own_plan(scenario, model.graph, scenario.plans[0]).value()[0].plan;
  const Sweep simgrid =
      sweep_of(experiment_of("tier: simgrid\n" + text, scratch / "e.yaml"), {.csv = scratch / "p.csv"});
  EXPECT_EQ(simgrid.done_before, 3u);
  EXPECT_DOUBLE_EQ(figure(simgrid, 1, "makespan_s"), time_plan(scenario, model.graph, plan, 0)->estimate.makespan_s);
}

TEST(SweepScenario, MemoryThatIsTooSmallIsARow) {
  const Scratch scratch;
  scratch.write("s.yaml", with(training_scenario(), "host: b, memory: 1GiB", "host: b, memory: 100kB"));
  const Sweep sweep = sweep_of(experiment_of("scenario: s.yaml\naxes: {schedule: [gpipe]}\n", scratch / "e.yaml"),
                               {.csv = scratch / "p.csv"});
  EXPECT_EQ(cell(sweep, 0, "status"), "impossible");
  EXPECT_THAT(cell(sweep, 0, "reason"), HasSubstr("memory"));
}

TEST(SweepScenario, AnUnknownLayerIsNoPoint) {
  const Scratch scratch;
  scratch.write("s.yaml", with(training_scenario(), "rest@B", "..relu9@B, rest@A"));
  const auto runner = make_runner(experiment_of("scenario: s.yaml\naxes: {schedule: [gpipe]}\n", scratch / "e.yaml"));
  ASSERT_FALSE(runner.ok());
  EXPECT_THAT(runner.error().to_string(), HasSubstr("s.yaml:11:9: "));
  EXPECT_THAT(runner.error().to_string(), HasSubstr("relu9"));
}

// More points than a batch has on a few cores.
std::string many_points() {
  return "pipeline: {devices: 2, micro_batches: 4, times: [1s, 1s, 1s]}\n"
         "axes: {schedule: [gpipe, 1f1b], jitter: [10%], seeds: 1500}\n";
}

TEST(SweepResume, GoesOnWhereItWasInterrupted) {
  const Scratch scratch;
  const Experiment experiment = experiment_of(many_points());
  const std::string whole = scratch / "whole.csv", parts = scratch / "parts.csv";
  const Sweep all = sweep_of(experiment, {.csv = whole});
  EXPECT_EQ(all.done, 3000u);
  size_t sum = 0, runs = 0;
  for (bool more = true; more; ++runs) {
    int batches = 0;
    const Sweep sweep = sweep_of(experiment, {.csv = parts, .interrupted = [&] { return ++batches == 2; }});
    EXPECT_EQ(sweep.done_before, sum);
    EXPECT_GT(sweep.done, sweep.done_before);
    sum = sweep.done;
    more = sweep.interrupted;
    // And what was interrupted breaks off in the middle of a row.
    const std::string text = value_of(read_file(parts));
    if (more) {
      std::filesystem::resize_file(parts, text.size() - 7);
      --sum;
    }
    ASSERT_LT(runs, 1000u);
  }
  EXPECT_GT(runs, 1u);
  EXPECT_EQ(value_of(read_file(parts)), value_of(read_file(whole)));
  const Sweep again = sweep_of(experiment, {.csv = parts, .interrupted = [] { return true; }});
  EXPECT_EQ(again.done_before, 3000u);
  EXPECT_FALSE(again.interrupted);
  EXPECT_EQ(value_of(read_file(parts)), value_of(read_file(whole)));
}

TEST(SweepResume, AGridThatGrowsKeepsItsPoints) {
  const Scratch scratch;
  const std::string csv = scratch / "p.csv", whole = scratch / "whole.csv";
  const std::string grown = with(std::string(zero_bubble), "[0s, 1s]", "[0s, 500ms, 1s]");
  sweep_of(experiment_of(std::string(zero_bubble)), {.csv = csv});
  const Sweep sweep = sweep_of(experiment_of(grown), {.csv = csv});
  EXPECT_EQ(sweep.done_before, 4u);
  EXPECT_EQ(sweep.done, 6u);
  sweep_of(experiment_of(grown), {.csv = whole});
  EXPECT_EQ(value_of(read_file(csv)), value_of(read_file(whole)));
}

TEST(SweepResume, RefusesPointsOfAnotherExperiment) {
  const Scratch scratch;
  const std::string csv = scratch / "p.csv";
  sweep_of(experiment_of(std::string(zero_bubble)), {.csv = csv});
  const std::string before = value_of(read_file(csv));
  const Experiment other = experiment_of(with(std::string(zero_bubble), "20s, 20s, 20s", "20s, 20s, 10s"));
  auto runner = make_runner(other).value();
  const auto refused = run_sweep(other, *runner, {.csv = csv});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().to_string(), HasSubstr("p.csv:2:1: this point (gpipe, 8, 0, , fingerprint "));
  EXPECT_THAT(refused.error().to_string(), HasSubstr("--fresh starts anew"));
  EXPECT_EQ(value_of(read_file(csv)), before);
  EXPECT_EQ(sweep_of(other, {.csv = csv, .fresh = true}).done_before, 0u);
  EXPECT_NE(value_of(read_file(csv)), before);
  scratch.write("p.csv", before + before.substr(before.find('\n') + 1));
  runner = make_runner(experiment_of(std::string(zero_bubble))).value();
  EXPECT_THAT(run_sweep(experiment_of(std::string(zero_bubble)), *runner, {.csv = csv}).error().to_string(),
              HasSubstr("p.csv:6:1: the point with fingerprint"));
}

TEST(Sweep, SaysHowFarItIs) {
  const Scratch scratch;
  std::vector<size_t> done;
  sweep_of(experiment_of(many_points()), {.csv = scratch / "p.csv", .progress = [&](size_t now, size_t total) {
                                            EXPECT_EQ(total, 3000u);
                                            done.push_back(now);
                                          }});
  EXPECT_EQ(done.front(), 0u);
  EXPECT_GT(done.size(), 1u);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

}  // namespace
}  // namespace nlsplit
