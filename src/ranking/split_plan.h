// A plan that splits stages inside their layers, as lower() takes it: an ordinary graph and an ordinary plan
// (partition/expand.h), with kernels chosen so that results keep their bits wherever they can.
//
//   ASSIGN_OR_RETURN(SplitPlan split, expand_plan(scenario, prepared, plan));
//   lower(split.kernels, split.plan, scenario.cluster, scenario.endpoints, &costs);
#pragma once

#include <span>
#include <vector>

#include "partition/expand.h"
#include "program/saved.h"
#include "ranking/ranking.h"

namespace nlsplit {

struct SplitPlan {
  KernelGraph kernels;
  Plan plan;                        // no splits left
  std::vector<WeightSlice> slices;  // for the WeightStore, before anything is saved or run: add_slices
  std::vector<PlanNote> notes;
  Promise promise;
};

// A shard computes with the kernel that `prepared` has for its whole node, where that kernel accepts the shard.
// prefer: which other kernel otherwise; none: what the scenario's profiles say is fastest.
// Errors: what expand_splits says of the plan; a scenario that trains (nothing splits gradients yet); devices of a
// stage that cannot reach each other; no kernel accepts a shard.
Result<SplitPlan> expand_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                              const KernelPreference& prefer = {});

// Whether the parts have the bits that they have within the whole: the same kernels, cut where these are exact, and no
// sums of partial sums. origin, regions: [node of parts], as in Expanded.
Promise promise_of(const KernelGraph& whole, const KernelGraph& parts, std::span<const int> origin,
                   std::span<const Region> regions);

// What `lower` would tell the policy of this plan's schedule; of a plan with splits, of the plan it expands to.
Result<ScheduleInput> schedule_input_of(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                                        const CostTable& costs);

}  // namespace nlsplit
