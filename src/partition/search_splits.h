// Candidates in which stages are split inside their layers: several devices share each micro-batch.
//
//   height(A:2+B) ..layer2 | A rest        rows of the first convolutions on two devices, A twice as many; the rest on
//   A
//
// Replicated stages of the best layer and replica plans, split along each possible axis instead of replicated, in
// training also all of them at once; and the network up to each of a few cuts, or from it on, on the 2, 3, …
// fastest devices, the rest on one. Four devices or more also in groups of two, three, …, replicas of each other, where
// the groups are equally fast. Shares go by speed, and by memory where that is tight. Of each kind the best are kept by
// a rough guess, and scored with the messages within their stages (partition/split_load.h).
#pragma once

#include <functional>
#include <vector>

#include "partition/plan_scorer.h"

namespace nlsplit::inline partition {

// At most `most`, of every axis, count of devices and shards and way to treat the halo about as many; best bound first.
// `scorer`: of the micro-batch count. `layers`: what search_layers found. options.axes says on which axes. `cost`: what
// is to be small.
std::vector<ScoredPlan> search_splits(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
                                      const SearchOptions& options, const SearchResult& layers, size_t most,
                                      const std::function<double(const ScoredPlan&)>& cost);

}  // namespace nlsplit::inline partition
