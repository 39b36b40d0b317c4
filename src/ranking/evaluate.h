// One plan: lowered, timed, and summed up.
#pragma once

#include <vector>

#include "ranking/ranking.h"
#include "sim/fast.h"

namespace nlsplit {

struct LoweredPlan {
  Program program;
  Dependencies dependencies;
  TimedGraph timed;
  Load load;  // busy seconds of devices and links
  const DeviceProgram* too_large =
      nullptr;  // into `program`: the first device whose memory is too small; then nothing is timed

  LoweredPlan() = default;
  LoweredPlan(LoweredPlan&&) = default;  // devices stay where they are when a vector moves, so `too_large` stays good
  LoweredPlan& operator=(LoweredPlan&&) = default;
};

Result<LoweredPlan> lower_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                               const CostTable& costs);

// From the times of its activities, whoever found them.
Estimate estimate_of(const Scenario& scenario, const LoweredPlan& lowered, const Timing& timing);

// Adds the breakdown of a simulation without noise.
void add_breakdown(const LoweredPlan& lowered, const Breakdown& breakdown, const Cluster& cluster, Estimate& estimate);

// The fast tier's word, no shorter than what the busiest device or link allows with contention.
Estimate estimate_fast(const Scenario& scenario, const LoweredPlan& lowered);

}  // namespace nlsplit
