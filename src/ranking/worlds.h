// Worlds: Monte Carlo draws of the true costs, within the spreads of the known ones, and the plans' times under them.
//
//   const std::vector<std::vector<double>> costs = costs_in_worlds(scenario, goal, ranking.judged, lowered, shares,
//   {}); confidence_of(costs, 0.9)                                                         (ranking/confidence.h)
//
// In a world each cost is its prediction times exp(e). The error e is a sum of parts. Each part's draw depends only on
// (seed, world, what it is of), so all plans meet the same world (common random numbers, as sim/disturb.h):
//
//   device    all computations of a device. Spread: of `corrections`, else how much disturbances lengthened the
//             executions of the profile
//   kernel    each computation on each device. Spread: of the profile's samples; of a prediction, of the fit
//   messages  all messages, spread of `corrections`; and the messages of each measured route, by the error of its fit
//   plan      the rest, spread of `corrections`, else usual_plan_spread. Two plans share the part of its variance that
//   is their common share of
//             the network's work on the same devices with the same split, if micro-batches and schedule are the same
//
// Errors have Student's t distribution with 4 degrees of freedom, which fits data with outliers where the degrees
// cannot be estimated (Lange, Little, Taylor, "Robust statistical modeling using the t distribution", JASA 84, 1989);
// its quantile at the spread's own probability is the spread. All errors of a device share one random scale: in some
// worlds the spreads of a device are twice as large as assumed.
//
// Each plan is timed by the fast tier in each world, so that another device or link may be the bottleneck there.
#pragma once

#include <cstdint>
#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// How far plans' times are from their predictions, common causes aside: half the distance between the quartiles, the
// median over 28 validations (docs/confidence.md). It counts where no validation of the scenario says more.
inline constexpr double usual_plan_spread = 0.0125;

struct WorldOptions {
  size_t count = 1000;
  uint64_t seed = 1;
  size_t workers = 1;
};

// Devices whose costs have no spread: neither measured nor in `corrections`. With such devices there are no error bars.
std::vector<DeviceId> without_spread(const Scenario& scenario);

// [plan][world]: cost_of the plan: its estimate by the judging tier, times the change by the fast tier.
// node_shares: of Ranking. Plans must have their `parts`.
std::vector<std::vector<double>> costs_in_worlds(const Scenario& scenario, const Goal& goal,
                                                 const std::vector<RankedPlan>& plans,
                                                 const std::vector<LoweredPlan>& lowered,
                                                 const std::vector<double>& node_shares, const WorldOptions& options);

}  // namespace nlsplit::inline ranking
