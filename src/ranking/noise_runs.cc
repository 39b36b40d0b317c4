#include "ranking/noise_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/disturb.h"

namespace nlsplit::inline ranking {
namespace {

// What is enough to choose candidates by: more runs, or more bursts of a link, only make the choice slower.
constexpr int most_runs = 100;
constexpr size_t most_changes = 64;

// A link as something that takes longer. After the last change counted it stays as it is then.
Slowness slowness_of(LinkCourse course) {
  Slowness slowness = {{0, 1 / course.share()}};
  while (slowness.size() < most_changes && course.until() < for_ever) {
    const double from = course.until();
    course.advance();
    slowness.push_back({from, 1 / course.share()});
  }
  return slowness;
}

}  // namespace

NoiseBound::NoiseBound(const Scenario& scenario) : cluster_(scenario.cluster) {
  const Noise& noise = scenario.noise.value();
  for (int run = 0; run < std::min(noise.runs, most_runs); ++run) {
    Weather weather = weather_of(noise, cluster_, run);
    Run& made = runs_.emplace_back();
    made.devices = std::move(weather.devices);
    made.links.resize(cluster_.links.size());
    for (const LinkCourse& course : weather.courses) made.links[course.link().index()] = slowness_of(course);
  }
}

double NoiseBound::factor(const LoweredPlan& plan, double makespan_s) const {
  if (!(makespan_s > 0)) return 1;
  std::vector<DeviceId> devices;
  for (const DeviceProgram& device : plan.program.devices)
    devices.push_back(device.kind == DeviceKind::host ? DeviceId() : cluster_.find_device(device.name));
  std::vector<double> factors;
  for (const Run& run : runs_) {
    double bound = makespan_s;
    for (size_t d = 0; d < devices.size(); ++d) {
      if (devices[d].valid())
        bound = std::max(bound, end_of(run.devices[devices[d].index()], 0, plan.load.device_seconds[d]));
    }
    for (const auto& [hop, busy] : plan.load.link_seconds)
      bound = std::max(bound, end_of(run.links[hop.link.index()], 0, busy));
    factors.push_back(bound / makespan_s);
  }
  return spread_of(factors).p95;
}

size_t nearest_rank(size_t count, double part) {
  const double rank = std::ceil(part * static_cast<double>(count) - 1e-9);
  return static_cast<size_t>(std::max(rank, 1.0)) - 1;
}

Spread spread_of(const std::vector<double>& values) {
  CHECK(!values.empty(), "nothing was run");
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  Spread spread;
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  const size_t run = order[nearest_rank(values.size(), 0.95)];
  spread.p95_run = static_cast<int>(run);
  spread.p95 = values[run];
  return spread;
}

Status check_noise(const Scenario& scenario, const Tier& tier) {
  if (!disturbs_links(*scenario.noise) || tier.shares_links()) return ok_status();
  return invalid_input(fmt::format("{}: its noise disturbs links, which the tier '{}' does not see: take tier simgrid",
                                   scenario.file, tier.name()));
}

Result<NoiseRuns> run_noise(const Scenario& scenario, const std::vector<LoweredPlan>& plans,
                            const RankOptions& options) {
  const Noise& noise = scenario.noise.value();
  RETURN_IF_ERROR(check_noise(scenario, *options.tier));
  std::vector<NoiseKeys> keys;
  for (const LoweredPlan& plan : plans)
    keys.push_back(noise_keys(plan.program, plan.dependencies, plan.timed, scenario.cluster));
  std::vector<std::vector<double>> makespans(plans.size()), latencies(plans.size());
  const auto simulation = [&](size_t i) {
    const size_t plan = i % plans.size();
    const int run = static_cast<int>(i / plans.size());
    return Simulation{&plans[plan].timed, &scenario.cluster,
                      [&noise, &scenario, &of_plan = keys[plan], run](TimedGraph& graph) {
                        disturb(graph, noise, scenario.cluster, of_plan, run);
                      }};
  };
  const size_t count = plans.size() * static_cast<size_t>(noise.runs);
  const auto take = [&](size_t i, const Timing& timing) {
    if (options.progress) options.progress("simulating with noise", i, count);
    const size_t plan = i % plans.size();
    const Estimate estimate = estimate_of(scenario, plans[plan], timing);
    makespans[plan].push_back(estimate.makespan_s);
    latencies[plan].push_back(estimate.latency_mean_s);
    return !(options.interrupted && options.interrupted());
  };
  RETURN_IF_ERROR(options.tier->simulate_each(count, simulation, take));

  NoiseRuns result;
  size_t complete = static_cast<size_t>(noise.runs);
  for (const std::vector<double>& values : makespans) complete = std::min(complete, values.size());
  if (plans.empty() || complete == 0) return result;
  result.runs = static_cast<int>(complete);
  for (size_t plan = 0; plan < plans.size(); ++plan) {
    makespans[plan].resize(complete);
    latencies[plan].resize(complete);
    result.plans.push_back({spread_of(makespans[plan]), spread_of(latencies[plan])});
  }
  return result;
}

}  // namespace nlsplit::inline ranking
