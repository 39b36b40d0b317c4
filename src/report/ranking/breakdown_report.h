// What a plan's devices and links did (sim/breakdown.h), as tables for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

// A row for each device of the Program, endpoints too, with its parts of the makespan, its memory; then one for each
// link that carries something.
std::string breakdown_text(const TimedPlan& timed);

// {"F": …, "I": …, "W": …, "step": …}: seconds a device computes in each phase that the Program can have; in training
// only, else nothing.
nlohmann::json phases_json(const PhaseTimes& phases);
// "F 31 %, I 30 %, W 29 %, step 1 %" of the makespan, without those that take nothing.
std::string phases_text(const PhaseTimes& phases, double makespan_s);

// [{"name", "bytes", "utilisation", "busy_share"}]
nlohmann::json links_json(const std::vector<LinkEstimate>& links);

}  // namespace nlsplit::inline reports
