// Pass `split`: a plan that splits stages inside their layers becomes an ordinary graph and an ordinary plan
// (partition/expand.h), with kernels chosen so that results keep their bits wherever they can.
#pragma once

#include <span>
#include <vector>

#include "compile/kernel_graph.h"
#include "partition/expand.h"
#include "program/saved.h"

namespace nlsplit::inline compiler {

struct SplitPlan {
  KernelGraph kernels;              // in training those of a step of the expanded network
  Plan plan;                        // no splits left
  std::vector<WeightSlice> slices;  // for the WeightStore, before anything is saved or run: add_slices
  std::vector<PlanNote> notes;
  Promise promise;
};

// A shard computes with the kernel that `whole` has for its whole node, where that kernel accepts the shard.
// prefer: which other kernel otherwise; none: the first that accepts it.
// In training the network is expanded, and then differentiated: gradients of pieces are nodes like others. Weights that
// shards have parts of are trained in parts, those that several shards read whole like tied weights.
// Errors: the plan does not fit the graph; what expand_splits says of the plan; in training what split_training.h says;
// devices of a stage that cannot reach each other; no kernel accepts a shard.
Result<SplitPlan> expand_plan(const KernelGraph& whole, const Plan& plan, const Cluster& cluster,
                              const KernelPreference& prefer = {});

// SplitOptions::multiples that plans are expanded with: of the kernels that were chosen at any level.
std::vector<int64_t> exact_multiples(const KernelGraph& kernels);

// Whether the parts have the bits that they have within the whole: the same kernels, cut where these are exact, and no
// sums of partial sums. origin, regions: [node of parts], as in Expanded.
Promise promise_of(const KernelGraph& whole, const KernelGraph& parts, std::span<const int> origin,
                   std::span<const Region> regions);

}  // namespace nlsplit::inline compiler
