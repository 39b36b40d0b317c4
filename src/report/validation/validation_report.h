// What a validation found, for people, for machines, and as a page to look at.
#pragma once

#include <string>
#include <vector>

#include "validate/results.h"

namespace nlsplit {

std::string validation_text(const PlanSet& set, const std::vector<ValidatedPlan>& plans);
// {"format": "nlsplit-validation-report", "version": 1, "quality": {…} or null, "plans": […]}
std::string validation_json(const PlanSet& set, const std::vector<ValidatedPlan>& plans);
// One file without references to others: predicted against measured, and each plan's two Gantt charts on one axis.
std::string validation_html(const PlanSet& set, const std::vector<ValidatedPlan>& plans);

}  // namespace nlsplit
