// What a validation found, for people, for machines, and as a page to look at.
#pragma once

#include <string>
#include <vector>

#include "validate/contest.h"
#include "validate/recalibrate.h"
#include "validate/results.h"

namespace nlsplit::inline reports {

// What there is beside the plans; nullptr: it was not asked for, or could not be had.
struct Findings {
  const ControlRuns* control = nullptr;
  const Contest* contest = nullptr;
  const Recalibration* recalibration = nullptr;
};

std::string validation_text(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings = {});
// {"format": "nlsplit-validation-report", "version": 3, "quality": {…} or null, "relative_quality": {…} or null,
// "control": {…} or null, "plans": […], "contest": {…}, "recalibration": {…}}
std::string validation_json(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings = {});
// One file without references to others: predicted against measured, and each plan's two Gantt charts on one axis.
std::string validation_html(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings = {});

}  // namespace nlsplit::inline reports
