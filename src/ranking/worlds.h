// Worlds: what plans cost if the costs they were timed with are wrong, by as much as their spreads say.
//
//   const std::vector<std::vector<double>> costs = costs_in_worlds(scenario, goal, ranking.judged, lowered, shares,
//   {}); confidence_of(costs, 0.9)                                                         (ranking/confidence.h)
//
// In a world each cost is its prediction times exp(e). Errors e have these parts, each drawn from (seed, world, what it
// is of) alone, so that all plans meet the same world (common random numbers, as sim/disturb.h):
//
//   device    all that a device computes. Its spread: `corrections`, else how much longer than at its best the machine
//             took on the average when it was profiled
//   kernel    each computation on each device. Its spread: of the profile's samples; of a prediction, of the fit
//   messages  all of them, spread of `corrections`; and those of each measured way, by the error of its fit
//   plan      what is left, spread of `corrections`. Two plans share as much of its variance as they have of the
//             network's work on the same devices in the same way, if they have the same micro-batches and schedule
//
// Errors have Student's t distribution with 4 degrees of freedom, which fits data with outliers where the degrees
// cannot be estimated (Lange, Little, Taylor, "Robust statistical modeling using the t distribution", JASA 84, 1989);
// its quantile at the spread's own probability is the spread. The kernels of a device are as far off together as it is
// (one scale for all of them): a device whose spreads are twice as large as thought is among the worlds.
//
// Each plan is timed by the fast tier in each world, so that another device or link may be the bottleneck there.
#pragma once

#include <cstdint>
#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

struct WorldOptions {
  size_t count = 1000;
  uint64_t seed = 1;
  size_t workers = 1;
};

// Devices whose costs have no spread: neither measured nor in `corrections`. While there are such, nothing is known.
std::vector<DeviceId> without_spread(const Scenario& scenario);

// [plan][world]: cost_of the plan there: its judged estimate, times by how much the fast tier says it changes.
// node_shares: of Ranking. Plans must have their `parts`.
std::vector<std::vector<double>> costs_in_worlds(const Scenario& scenario, const Goal& goal,
                                                 const std::vector<RankedPlan>& plans,
                                                 const std::vector<LoweredPlan>& lowered,
                                                 const std::vector<double>& node_shares, const WorldOptions& options);

}  // namespace nlsplit::inline ranking
