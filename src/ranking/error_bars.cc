#include "ranking/error_bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranking/confidence.h"
#include "ranking/worlds.h"

namespace nlsplit::inline ranking {
namespace {

// The most activities × worlds for which error bars are computed by default: about a second of one core.
constexpr size_t most_world_work = 20'000'000;

// "A, B and 3 others"
std::string names_of(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  constexpr size_t named = 3;
  std::string text;
  for (size_t i = 0; i < std::min(named, devices.size()); ++i) {
    const bool last = i > 0 && i + 1 == devices.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + cluster.device(devices[i]).name;
  }
  if (devices.size() > named)
    text += fmt::format(" and {} other{}", devices.size() - named, devices.size() == named + 1 ? "" : "s");
  return text;
}

}  // namespace

Result<ErrorBarsWanted> error_bars_wanted(const Scenario& scenario, const RankOptions& options) {
  ErrorBarsWanted bars;
  if (!options.error_bars && !options.confidence) return bars;
  const std::vector<DeviceId> unknown = without_spread(scenario);
  bars.wanted = unknown.empty();
  if (bars.wanted) return bars;
  bars.why_not = unknown.size() == scenario.cluster.devices.size()
                     ? "costs are not measured"
                     : fmt::format("costs of {} are not measured", names_of(scenario.cluster, unknown));
  if (!options.confidence) return bars;
  Error error = invalid_input(fmt::format(
      "how sure a ranking is cannot be said: {}. Measure them (nlbench profile), or name corrections that have their "
      "spreads (nlbench validate --recalibrate)",
      bars.why_not));
  error.where.file = scenario.file;
  return error;
}

ErrorBars find_error_bars(const RankContext& context, const Goal& goal, const std::vector<RankedPlan>& judged,
                          const std::vector<LoweredPlan>& lowered, const std::vector<double>& node_shares,
                          bool was_interrupted) {
  ErrorBars bars;
  if (lowered.empty()) return bars;
  WorldOptions options;
  options.seed = context.options.seed;
  options.workers = context.workers;
  size_t activities = 0;
  for (const LoweredPlan& plan : lowered) activities += plan.timed.activities.size();
  if (!context.options.confidence && (activities * options.count > most_world_work || was_interrupted)) {
    bars.why_not = was_interrupted ? "interrupted" : "they take long here: --confidence asks for them";
    return bars;
  }
  progress(context.options, "drawing error bars", 0, 1);
  bars.confidence = confidence_of(costs_in_worlds(context.scenario, goal, judged, lowered, node_shares, options),
                                  context.options.confidence.value_or(usual_confidence));
  return bars;
}

}  // namespace nlsplit::inline ranking
