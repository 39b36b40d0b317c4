// Corrections of costs learned from a validation, and how well they predict plans that they were not learned from.
#pragma once

#include <functional>
#include <vector>

#include "cost/corrections.h"
#include "validate/results.h"

namespace nlsplit::inline validation {

// Factors of measured to predicted computing, by device: medians over the plans that ran in which the device was to
// compute at least a tenth as long as the busiest one. The same for messages. Without data: 1. And their spreads over
// the runs; recalibrate() adds the spread of plans.
Corrections learn(const std::vector<ValidatedPlan>& plans);

struct Recalibration {
  Corrections corrections;        // learnt from all plans
  std::optional<Quality> before;  // of the predictions as they were
  // The same plans, each predicted with corrections learned from the other half: the plans with odd places in the
  // predicted order teach those with even places, and vice versa.
  std::optional<Quality> after;
};

// `predict`: the set again with corrections; the same plans in the same order.
Result<Recalibration> recalibrate(const PlanSet& set, const std::vector<PlanRun>& runs,
                                  const std::function<Result<PlanSet>(const Corrections&)>& predict);

}  // namespace nlsplit::inline validation
