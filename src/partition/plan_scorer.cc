#include "partition/plan_scorer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/operators/operator.h"

namespace nlsplit::inline partition {
namespace {

// PlanScorer::weight_bytes().
std::vector<double> weight_bytes_before(const Graph& graph) {
  std::vector<double> sums = {0};
  std::vector<bool> seen(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    double sum = sums.back();
    for (const ValueId read : reads_of(node)) {
      if (graph.value(read).kind != ValueKind::weight || seen[read.index()]) continue;
      seen[read.index()] = true;
      sum += static_cast<double>(size_of(graph.value(read).type).value());
    }
    sums.push_back(sum);
  }
  return sums;
}

// [node]: what it reads and writes but weights, all of which is there while it runs.
std::vector<double> bytes_around(const Graph& graph) {
  std::vector<double> bytes;
  for (const Node& node : graph.nodes) {
    double sum = 0;
    for (const ValueId read : reads_of(node)) {
      if (graph.value(read).kind != ValueKind::weight)
        sum += static_cast<double>(size_of(graph.value(read).type).value());
    }
    for (const ValueId made : node.outputs) sum += static_cast<double>(size_of(graph.value(made).type).value());
    bytes.push_back(is_view(node.op) ? 0 : sum);
  }
  return bytes;
}

// In training nothing goes to the sink.
std::vector<Crossing> crossings_of(const Graph& graph, const Cluster& cluster, const SearchCosts& costs) {
  std::vector<Crossing> crossings = find_crossings(graph, cluster.messages);
  for (Crossing& crossing : crossings) crossing.is_output &= costs.step == nullptr;
  return crossings;
}

// [i]: what a micro-batch keeps for its gradients of nodes before i; nodes + 1. Nothing in inference.
std::vector<double> kept_bytes_before(const Graph& graph, const SearchCosts& costs) {
  std::vector<double> sums(graph.nodes.size() + 1, 0);
  if (costs.step == nullptr) return sums;
  std::partial_sum(costs.step->kept_bytes.begin(), costs.step->kept_bytes.end(), sums.begin() + 1);
  return sums;
}

}  // namespace

PlanScorer::PlanScorer(const Graph& graph, const Cluster& cluster, const Network& network, HostId source, HostId sink,
                       SearchCosts costs, std::vector<int64_t> multiples)
    : costs_(std::move(costs)),
      network_(network),
      scorer_(cluster, network, source, sink, costs_, crossings_of(graph, cluster, costs_)),
      loads_(graph, cluster, network, costs_, std::move(multiples)),
      weight_bytes_(weight_bytes_before(graph)),
      bytes_around_(bytes_around(graph)),
      kept_bytes_(kept_bytes_before(graph, costs_)) {}

ScoredPlan PlanScorer::score(std::vector<Stage> stages) {
  const std::optional<PlanLoads> loads = loads_.of(stages);
  const Score score = loads ? scorer_.score(stages, &*loads) : Score{never, never, 0};
  ScoredPlan scored;
  scored.bound_seconds = score.bound;
  scored.latency_seconds = score.latency;
  scored.busiest_seconds = score.busiest;
  for (size_t s = 0; score.bound < never && s < stages.size(); ++s) add_stage(stages, s, (*loads)[s], scored);
  scored.plan.stages = std::move(stages);
  scored.plan.micro_batches = costs_.micro_batches;
  return scored;
}

double PlanScorer::largest_layer_bytes(const Stage& stage) const {
  return *std::max_element(bytes_around_.begin() + static_cast<std::ptrdiff_t>(stage.begin),
                           bytes_around_.begin() + static_cast<std::ptrdiff_t>(stage.end));
}

void PlanScorer::add_stage(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>& groups,
                           ScoredPlan& scored) const {
  const Stage& stage = stages[s];
  double weights = weight_bytes_of(stage), around = largest_layer_bytes(stage);
  double kept = kept_bytes_[stage.end] - kept_bytes_[stage.begin];
  if (!groups.empty()) {
    const SplitLoad& load = groups[0];
    weights = *std::ranges::max_element(load.weight_bytes);
    around /= static_cast<double>(load.compute.size());
    kept /= static_cast<double>(load.compute.size());
    const auto parts = static_cast<double>(load.parts), messages = static_cast<double>(load.messages);
    scored.inner_nodes += parts + messages;
    scored.inner_instructions += costs_.micro_batches * (parts + 3 * messages);  // a slice, send and recv
  }
  if (costs_.step) weights *= costs_.step->held_bytes;
  scored.memory_bytes = std::max(scored.memory_bytes, weights + around + kept);
  if (!costs_.step) return;
  const size_t replicas = stage.devices.size() / (stage.split ? stage.split->shares.size() : 1);
  const size_t all = (static_cast<size_t>(costs_.micro_batches) + replicas - 1) / replicas;
  const auto with = [&](size_t under_way) { return weights + around + kept * static_cast<double>(under_way); };
  scored.memory_bytes_of_all = std::max(scored.memory_bytes_of_all, with(all));
  scored.memory_bytes_of_chain = std::max(scored.memory_bytes_of_chain, with(std::min(all, stages.size() - s)));
}

}  // namespace nlsplit::inline partition
