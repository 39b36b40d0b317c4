// The figures of a validation as JSON, which its report and its page share.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "report/validation/validation_report.h"

namespace nlsplit::inline reports {

// What validation_json prints; with timelines, what the page draws.
nlohmann::json validation_data(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings,
                               bool timelines);

}  // namespace nlsplit::inline reports
