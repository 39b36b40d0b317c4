// What a validation found, for people, for machines, and as a page to look at.
#pragma once

#include <string>
#include <vector>

#include "validate/recalibrate.h"
#include "validate/results.h"

namespace nlsplit::inline reports {

// control: nullptr where none ran; recalibration: where none was asked for.
std::string validation_text(const PlanSet& set, const std::vector<ValidatedPlan>& plans,
                            const ControlRuns* control = nullptr, const Recalibration* recalibration = nullptr);
// {"format": "nlsplit-validation-report", "version": 2, "quality": {…} or null, "relative_quality": {…} or null,
// "control", "plans": […], "recalibration": {…}}
std::string validation_json(const PlanSet& set, const std::vector<ValidatedPlan>& plans,
                            const ControlRuns* control = nullptr, const Recalibration* recalibration = nullptr);
// One file without references to others: predicted against measured, and each plan's two Gantt charts on one axis.
std::string validation_html(const PlanSet& set, const std::vector<ValidatedPlan>& plans,
                            const ControlRuns* control = nullptr);

}  // namespace nlsplit::inline reports
