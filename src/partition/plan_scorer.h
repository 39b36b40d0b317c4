// What can be said of the plans of one micro-batch count without lowering them.
//
//   PlanScorer scorer(graph, cluster, network, source, sink, costs);
//   const ScoredPlan scored = scorer.score(stages);
#pragma once

#include <vector>

#include "partition/score.h"
#include "partition/split_load.h"

namespace nlsplit::inline partition {

// Not for several threads at once.
class PlanScorer {
 public:
  // Borrows all but the costs.
  PlanScorer(const Graph& graph, const Cluster& cluster, const Network& network, HostId source, HostId sink,
             SearchCosts costs);
  PlanScorer(const PlanScorer&) = delete;
  PlanScorer& operator=(const PlanScorer&) = delete;

  // Infinite bound: two devices that exchange data cannot talk to each other, or a stage cannot be split as it is.
  ScoredPlan score(std::vector<Stage> stages);

  const SearchCosts& costs() const { return costs_; }
  const Scorer& scorer() const { return scorer_; }
  const Network& network() const { return network_; }
  const std::vector<double>& weight_bytes() const { return weight_bytes_; }  // SearchSpace::weight_bytes

 private:
  void add_stage(const Stage& stage, ScoredPlan& scored);

  const SearchCosts costs_;
  const Network& network_;
  const Scorer scorer_;
  SplitLoads loads_;
  std::vector<double> weight_bytes_, bytes_around_;
};

}  // namespace nlsplit::inline partition
