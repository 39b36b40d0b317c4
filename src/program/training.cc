#include "program/training.h"

#include <algorithm>

#include "graph/operators/operator.h"

namespace nlsplit {
namespace {

// Of the network's nodes: the one that makes the output, or what that is a view of. The loss is computed there.
size_t last_node(const Graph& network) {
  const Value& output = network.value(network.outputs[0]);
  return output.kind == ValueKind::node ? output.producer.index() : network.nodes.size() - 1;
}

std::vector<bool> computed_nodes(const Graph& graph, ValueId loss, const std::vector<ValueId>& gradients) {
  std::vector<bool> needed(graph.values.size(), false), computed(graph.nodes.size(), false);
  needed[loss.index()] = true;
  for (const ValueId gradient : gradients) needed[gradient.index()] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (std::ranges::none_of(node.outputs, [&](ValueId output) { return needed[output.index()]; })) continue;
    computed[n] = !is_view(node.op);
    for (const ValueId read : reads_of(node)) needed[read.index()] = true;
  }
  return computed;
}

}  // namespace

Result<StepGraph> step_graph(const Graph& network, const TrainingOptions& options) {
  ASSIGN_OR_RETURN(const GraphWithLoss with, with_loss(network, options.loss));
  StepGraph step;
  StepNodes& nodes = step.nodes;
  nodes.trained = trained_weights(with, nodes.constants);
  std::erase_if(nodes.trained, [&](ValueId id) {
    const Value& weight = network.value(id);
    return weight.type.dtype != DType::f32 || element_count(weight.type.shape) <= 1 ||
           options.constants.contains(weight.content);
  });
  if (nodes.trained.empty()) return invalid_input("there is nothing to train: the loss depends on no weight");
  const double share = 1.0 / options.micro_batches;
  ASSIGN_OR_RETURN(Differentiated made, differentiate(with.graph, with.loss, nodes.trained, nodes.constants, share));
  step.graph = std::move(made.graph);
  step.graph.outputs.clear();
  nodes.network = network.nodes.size();
  nodes.phases = std::move(made.phases);
  nodes.gradients = std::move(made.gradients);
  nodes.derived.resize(nodes.network);
  const size_t last = last_node(network);
  for (size_t n = 0; n < step.graph.nodes.size(); ++n) {
    const size_t origin = made.origins[n] < nodes.network ? made.origins[n] : last;
    nodes.origins.push_back(origin);
    if (n >= nodes.network) nodes.derived[origin].push_back(n);
  }
  nodes.computed = computed_nodes(step.graph, with.loss, nodes.gradients);
  return step;
}

}  // namespace nlsplit
