// Error bars of the plans simulated, where costs have spreads.
#include <fmt/format.h>

#include <algorithm>

#include "ranking/confidence.h"
#include "ranking/ranker.h"
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

// Before anything is lowered: PlanParts are made only where they are used.
Status Ranker::see_whether_there_are_error_bars() {
  if (!options_.error_bars && !options_.confidence) return ok_status();
  const std::vector<DeviceId> unknown = without_spread(scenario_);
  if (unknown.empty()) {
    wants_parts_ = true;
    return ok_status();
  }
  ranking_.no_error_bars = unknown.size() == scenario_.cluster.devices.size()
                               ? "costs are not measured"
                               : fmt::format("costs of {} are not measured", names_of(scenario_.cluster, unknown));
  if (!options_.confidence) return ok_status();
  Error error = invalid_input(fmt::format(
      "how sure a ranking is cannot be said: {}. Measure them (nlbench profile), or name corrections that have their "
      "spreads (nlbench validate --recalibrate)",
      ranking_.no_error_bars));
  error.where.file = scenario_.file;
  return error;
}

void Ranker::find_confidence() {
  if (!wants_parts_ || judged_.empty()) return;
  WorldOptions options;
  options.seed = options_.seed;
  options.workers = workers();
  size_t activities = 0;
  for (const LoweredPlan& plan : judged_) activities += plan.timed.activities.size();
  if (!options_.confidence && (activities * options.count > most_world_work || ranking_.interrupted)) {
    ranking_.no_error_bars = ranking_.interrupted ? "interrupted" : "they take long here: --confidence asks for them";
    return;
  }
  progress("drawing error bars", 0, 1);
  ranking_.confidence =
      confidence_of(costs_in_worlds(scenario_, goal_, ranking_.judged, judged_, ranking_.node_shares, options),
                    options_.confidence.value_or(usual_confidence));
}

}  // namespace nlsplit::inline ranking
