// One plan: lowered, timed, and summed up.
#pragma once

#include <optional>
#include <vector>

#include "partition/search.h"
#include "ranking/ranking.h"
#include "sim/fast.h"
#include "sim/online.h"

namespace nlsplit {

struct LoweredPlan {
  Program program;
  Dependencies dependencies;
  std::optional<RelaxedOrder> relaxed;  // of an online plan
  Online online;                        // the same
  TimedGraph timed;
  Load load;  // busy seconds of devices and links
  const DeviceProgram* too_large =
      nullptr;  // into `program`: the first device whose memory is too small; then nothing is timed

  LoweredPlan() = default;
  LoweredPlan(LoweredPlan&&) = default;  // devices stay where they are when a vector moves, so `too_large` stays good
  LoweredPlan& operator=(LoweredPlan&&) = default;
};

// What search needs to know of the model at one micro-batch count, in training of a whole step.
Result<SearchCosts> search_costs(const Scenario& scenario, const PreparedModel& prepared, const CostTable& costs);

Result<LoweredPlan> lower_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                               const CostTable& costs);

// Its activities on these costs.
Result<TimedGraph> timed_graph_of(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs);

// From the times of its activities, whoever found them.
Estimate estimate_of(const Scenario& scenario, const LoweredPlan& lowered, const Timing& timing);

double score_of(Objective objective, const Estimate& estimate);  // smaller is better

// Adds the breakdown of a simulation without noise.
void add_breakdown(const LoweredPlan& lowered, const Breakdown& breakdown, const Cluster& cluster, Estimate& estimate);

// The fast tier's word, no shorter than what the busiest device or link allows with contention.
Estimate estimate_fast(const Scenario& scenario, const LoweredPlan& lowered);

}  // namespace nlsplit
