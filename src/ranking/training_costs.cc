#include "ranking/training_costs.h"

#include <algorithm>
#include <optional>

#include "cost/messages.h"
#include "graph/optimizer.h"
#include "partition/score.h"

namespace nlsplit::inline ranking {
namespace {

// [node of the step]: seconds on a device; 0 where nothing is computed.
Result<std::vector<double>> step_seconds(const Training& training, DeviceId device, Level level,
                                         const CostTable& costs) {
  const Graph& step = training.step.graph;
  const std::vector<ComputeDesc>& descs = training.step.chosen.at(level).descs;
  const std::vector<NodeKernel>& kernels = training.step.kernels.at(level);
  std::vector<std::optional<double>> known(step.nodes.size());  // by the first node with the same computation
  std::vector<double> seconds(step.nodes.size(), 0);
  for (size_t n = 0; n < step.nodes.size(); ++n) {
    if (!training.nodes.computed[n]) continue;
    std::optional<double>& time = known[kernels[n].same_as];
    if (!time) {
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(device, descs[n], step.nodes[n].name));
      time = cost.time.value();
    }
    seconds[n] = *time;
  }
  return seconds;
}

// Of those of a step's nodes, for each node of the network what belongs to it.
void add_parts(const Training& training, const std::vector<double>& seconds, size_t network, StepCosts& parts) {
  for (auto* of : {&parts.forward, &parts.inputs, &parts.weights, &parts.updates}) of->emplace_back(network, 0.0);
  const StepNodes& nodes = training.nodes;
  std::vector<bool> shared(seconds.size(), false);  // in no stage
  for (const auto* list : {&nodes.before_updates, &nodes.behind_updates}) {
    for (const size_t n : *list) shared[n] = true;
  }
  for (size_t n = 0; n < seconds.size(); ++n) {
    if (shared[n]) continue;
    const auto of = [&](std::vector<std::vector<double>>& all) -> double& { return all.back()[nodes.origins[n]]; };
    switch (nodes.phases[n]) {
      case NodePhase::forward:
        of(parts.forward) +=
            training.options.recompute == Recompute::full && n < nodes.network ? 2 * seconds[n] : seconds[n];
        break;
      case NodePhase::input:
        of(parts.inputs) += seconds[n];
        break;
      case NodePhase::weight:
        of(parts.weights) += seconds[n];
        break;
      case NodePhase::step:
        of(parts.updates) += seconds[n];
        break;
    }
  }
}

// messages: as what gradients travel.
void add_bytes(const KernelGraph& graph, DType messages, StepCosts& parts) {
  const Training& training = *graph.training;
  parts.trained.assign(graph.graph.values.size(), false);
  for (const ValueId weight : training.nodes.trained) parts.trained[weight.index()] = true;
  std::vector<bool> seen(parts.trained.size(), false);
  for (const Node& node : graph.graph.nodes) {
    double& sum = parts.gradient_bytes.emplace_back(0);
    for (const ValueId read : reads_of(node)) {
      if (!parts.trained[read.index()] || seen[read.index()]) continue;
      seen[read.index()] = true;
      sum += static_cast<double>(size_of(traveling(graph.graph.value(read).type, messages)).value());
    }
  }
  parts.held_bytes = 2 + static_cast<double>(state_names(training.options.optimizer).size());
  parts.kept_bytes.assign(graph.graph.nodes.size(), 0);
  if (training.options.recompute == Recompute::full) return;
  for (size_t v = 0; v < graph.graph.values.size(); ++v) {
    const Value& value = graph.graph.values[v];
    if (value.kind != ValueKind::node || training.step.root[v] != ValueId(v)) continue;
    const auto is_gradient = [&](size_t reader) {
      return reader >= training.nodes.network && training.nodes.phases[reader] != NodePhase::forward;
    };
    if (std::ranges::any_of(training.step.readers[v], is_gradient))
      parts.kept_bytes[value.producer.index()] += static_cast<double>(size_of(value.type).value());
  }
}

}  // namespace

Result<SearchCosts> training_search_costs(const KernelGraph& graph, int micro_batches, const Cluster& cluster,
                                          const CostTable& costs) {
  const Graph& g = graph.graph;
  const Training& training = *graph.training;
  SearchCosts result;
  result.micro_batches = micro_batches;
  StepCosts parts;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceId device(d);
    if (const DeviceId same = first_with_costs_of(device, cluster, costs); same != device) {
      const size_t of = same.index();
      for (auto* all : {&parts.forward, &parts.inputs, &parts.weights, &parts.updates}) all->push_back((*all)[of]);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<double> seconds,
                     step_seconds(training, device, cluster.devices[d].level, costs));
    add_parts(training, seconds, g.nodes.size(), parts);
  }
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    std::vector<double>& seconds = result.node_seconds.emplace_back(parts.forward[d]);
    for (size_t n = 0; n < seconds.size(); ++n) seconds[n] += parts.inputs[d][n] + parts.weights[d][n];
  }
  result.cut_bytes.assign(g.nodes.size() + 1, 0);
  for (const Crossing& crossing : find_crossings(g, cluster.messages)) {
    if (crossing.made < 0) {
      result.input_bytes += crossing.bytes;
      continue;
    }
    const size_t last = crossing.read.empty() ? 0 : crossing.read.back();
    for (size_t i = static_cast<size_t>(crossing.made) + 1; i <= last; ++i)
      result.cut_bytes[i] += 2 * crossing.bytes;  // there, and its gradient back
  }
  result.cut_bytes.front() = result.input_bytes;
  add_bytes(graph, cluster.messages, parts);
  result.step = std::make_shared<const StepCosts>(std::move(parts));
  return result;
}

}  // namespace nlsplit::inline ranking
