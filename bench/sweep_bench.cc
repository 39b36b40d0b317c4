// Points of a sweep: training ResNet-50 in 8 stages and 32 micro-batches, and a pipeline of that shape. items = points.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "sim/simgrid/simgrid_tier.h"
#include "sweep/sweep.h"

namespace nlsplit {
namespace {

constexpr std::string_view eight_stages = R"(model: zoo:resnet50
workload: {mode: training, batch: 32, micro_batches: 32}
topology: {kind: star, hosts: 8, link: {bandwidth: 10Gbps, latency: 25us}}
devices:
  m: {hosts: h0..h7, memory: 16GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
source: h0
sink: h0
plans:
  eighths: [..layer1.0@m0, ..layer2.0@m1, ..layer2.2@m2, ..layer3.0@m3, ..layer3.2@m4, ..layer3.4@m5, ..layer4.0@m6, rest@m7]
)";

Axis axis(AxisKind kind, const std::string& column, const std::vector<std::string>& names) {
  Axis made{kind, {}, column, {}, true};
  for (const std::string& name : names) made.values.push_back({name, name, {}});
  return made;
}

Axis link_speeds(int count) {
  Axis made{AxisKind::link_speed, {}, "link_speed_factor", {}, true};
  for (int i = 1; i <= count; ++i) made.values.push_back({fmt::format("{}", i), {}, {1.0 / i}});
  return made;
}

// Wall-clock time of everything after the experiment is read, the model and the file included.
void sweep_points(benchmark::State& state, const std::string& schedule, const Tier& tier) {
  Experiment experiment;
  experiment.scenario = parse_scenario(eight_stages, "bench.yaml").value();
  experiment.tier = &tier;
  Axis micro_batches{AxisKind::micro_batches, {}, "micro_batches", {{"32", {}, {32}}}, true};
  experiment.axes = {axis(AxisKind::schedule, "schedule", {schedule}), axis(AxisKind::plan, "plan", {"eighths"}),
                     std::move(micro_batches), link_speeds(static_cast<int>(state.range(0)))};
  const std::vector<GridPoint> points = grid_of(experiment).value();
  std::vector<Setting> settings;
  for (const GridPoint& point : points) settings.push_back(point.setting);
  for (auto _ : state) {
    auto runner = make_runner(experiment);
    if (!runner.ok()) return state.SkipWithError(runner.error().message.c_str());
    const auto results = (*runner)->run(settings, false);
    if (!results.ok()) return state.SkipWithError(results.error().message.c_str());
    if (!results->front().impossible.empty()) return state.SkipWithError(results->front().impossible.c_str());
    benchmark::DoNotOptimize(results->front().makespan_s);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * settings.size()));
}
BENCHMARK_CAPTURE(sweep_points, one_f_one_b_fast, "1f1b", fast_tier())
    ->Arg(32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_points, gpipe_fast, "gpipe", fast_tier())
    ->Arg(32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_points, one_f_one_b_simgrid, "1f1b", simgrid_tier())
    ->Arg(32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// 1,000 points of a pipeline, with jitter, one seed each.
void sweep_pipeline(benchmark::State& state, const std::string& schedule) {
  const Experiment experiment =
      parse_experiment(
          fmt::format("pipeline: {{devices: 8, micro_batches: 32, times: [10ms, 12ms, 8ms], message: 1ms}}\n"
                      "axes: {{schedule: [{}], jitter: 20%, seeds: 1000}}\n",
                      schedule),
          "bench.yaml")
          .value();
  const std::vector<GridPoint> points = grid_of(experiment).value();
  std::vector<Setting> settings;
  for (const GridPoint& point : points) settings.push_back(point.setting);
  for (auto _ : state) {
    const auto results = make_pipeline_runner(experiment)->run(settings, false);
    benchmark::DoNotOptimize(results->front().makespan_s);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * settings.size()));
}
BENCHMARK_CAPTURE(sweep_pipeline, one_f_one_b, "1f1b")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_pipeline, online, "online: longest_path")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nlsplit
