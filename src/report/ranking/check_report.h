// What `nlsim check` says of a plan, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ranking/own_plan.h"

namespace nlsplit::inline reports {

// Of a plan that can be run: its speed, its place, what it is bound by, what the best one does better. Every line ends
// in a newline.
std::string check_text(const CheckedPlan& checked);

// {"name", "plan", "sound", "wrong": [{"micro_batches", "schedule", "message"}], "place", "simulated", …, "bound",
// "best"}
nlohmann::json check_json(const CheckedPlan& checked, const Scenario& scenario, const Graph& graph);

}  // namespace nlsplit::inline reports
