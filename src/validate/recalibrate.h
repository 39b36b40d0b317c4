// Corrections of costs learned from a validation, and how well they predict plans that they were not learned from.
#pragma once

#include <functional>
#include <vector>

#include "cost/corrections.h"
#include "validate/results.h"

namespace nlsplit::inline validation {

// Medians over the plans that ran: of each device that was to compute at least a tenth as long as the busiest one, how
// many times as long it did; the same for messages. Without any: factors of 1. And their spreads over the runs; that of
// plans is recalibrate's to say.
Corrections learn(const std::vector<ValidatedPlan>& plans);

struct Recalibration {
  Corrections corrections;        // learnt from all plans
  std::optional<Quality> before;  // of the predictions as they were
  // The same plans, each predicted with what the other half of them taught: the first, third … best predicted teach for
  // the second, fourth …, and the other way round.
  std::optional<Quality> after;
};

// `predict`: the set again with corrections; the same plans in the same order.
Result<Recalibration> recalibrate(const PlanSet& set, const std::vector<PlanRun>& runs,
                                  const std::function<Result<PlanSet>(const Corrections&)>& predict);

}  // namespace nlsplit::inline validation
