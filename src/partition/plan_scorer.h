// Scores plans of one micro-batch count without compiling them.
//
//   PlanScorer scorer(graph, cluster, network, source, sink, costs, multiples);
//   const ScoredPlan scored = scorer.score(stages);
#pragma once

#include <vector>

#include "partition/score.h"
#include "partition/split_load.h"

namespace nlsplit::inline partition {

// Not for several threads at once.
class PlanScorer {
 public:
  // Borrows graph, cluster and network. multiples: SplitOptions::multiples; none where no plan splits layers.
  PlanScorer(const Graph& graph, const Cluster& cluster, const Network& network, HostId source, HostId sink,
             SearchCosts costs, std::vector<int64_t> multiples = {});
  PlanScorer(const PlanScorer&) = delete;
  PlanScorer& operator=(const PlanScorer&) = delete;

  // Infinite bound: two devices that exchange data cannot talk to each other, or a stage cannot be split as it is.
  ScoredPlan score(std::vector<Stage> stages);

  const SearchCosts& costs() const { return costs_; }
  const Scorer& scorer() const { return scorer_; }
  const Network& network() const { return network_; }
  // [node]: of the weights that nodes before it are the first to read; nodes + 1.
  const std::vector<double>& weight_bytes() const { return weight_bytes_; }
  // Of the weights that a stage is the first to read.
  double weight_bytes_of(const Stage& stage) const { return weight_bytes_[stage.end] - weight_bytes_[stage.begin]; }
  // Bytes that its largest layer reads and writes, without weights.
  double largest_layer_bytes(const Stage& stage) const;

 private:
  void add_stage(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>& groups,
                 ScoredPlan& scored) const;

  const SearchCosts costs_;
  const Network& network_;
  const Scorer scorer_;
  SplitLoads loads_;
  std::vector<double> weight_bytes_, bytes_around_, kept_bytes_;
};

}  // namespace nlsplit::inline partition
