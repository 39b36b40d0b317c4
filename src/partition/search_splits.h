// Candidates in which stages are split inside their layers: several devices share each micro-batch.
//
//   height(A:2+B) ..layer2 | A rest        rows of the first convolutions on two devices, A twice as many; the rest on
//   A
//
// Stages of several devices in the best layer and replica plans, split on each axis they can be instead of taking
// turns; and the network up to each of a few cuts, or from it on, on the 2, 3, … fastest devices, the rest on one. Four
// devices or more also in groups of two, three, …, replicas of each other, where the groups are equally fast. Of each
// kind the best are kept by a rough guess, and scored with the messages within their stages (partition/split_load.h).
#pragma once

#include <functional>
#include <vector>

#include "partition/plan_scorer.h"

namespace nlsplit::inline partition {

// Small whole numbers (8 for each device at most) in proportion to the speed of devices that take so long for the same
// work: within 3 % of the best if such are there. {1, 2} → {2, 1}.
std::vector<int64_t> small_shares(const std::vector<double>& seconds);

// Of the devices of a stage, by the seconds they take for its layers.
std::vector<int64_t> shares_by_speed(const SearchCosts& costs, const Stage& stage);

// At most `most`, of every axis, count of devices and shards and way to treat the halo about as many; best bound first.
// `scorer`: of the micro-batch count. `layers`: what search_layers found. options.axes says on which axes. `cost`: what
// is to be small.
std::vector<ScoredPlan> search_splits(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
                                      const SearchOptions& options, const std::vector<ScoredPlan>& layers, size_t most,
                                      const std::function<double(const ScoredPlan&)>& cost);

}  // namespace nlsplit::inline partition
