#include "graph/rewrite.h"

namespace nlsplit {

std::vector<int> use_counts(const Graph& graph) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId read : reads_of(node)) ++uses[read.index()];
  }
  for (const ValueId output : graph.outputs) ++uses[output.index()];
  return uses;
}

void redirect(Graph& graph, ValueId from, ValueId to) {
  for (Node& node : graph.nodes) {
    for (ValueId& input : node.inputs) {
      if (input == from) input = to;
    }
    for (EpilogueStep& step : node.epilogue) {
      if (step.operand == from) step.operand = to;
    }
  }
}

Graph compacted(const Graph& graph, const std::vector<bool>& removed) {
  Graph out;
  out.name = graph.name;
  std::vector<ValueId> renamed(graph.values.size());
  const auto keep = [&](ValueId id) {
    if (!id.valid()) return id;
    ValueId& now = renamed[id.index()];
    if (!now.valid()) {
      now = ValueId(out.values.size());
      out.values.push_back(graph.value(id));
    }
    return now;
  };
  for (const ValueId input : graph.inputs) out.inputs.push_back(keep(input));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (removed[i]) continue;
    Node node = graph.nodes[i];
    for (ValueId& input : node.inputs) input = keep(input);
    for (EpilogueStep& step : node.epilogue) step.operand = keep(step.operand);
    for (ValueId& output : node.outputs) {
      output = keep(output);
      out.values[output.index()].producer = NodeId(out.nodes.size());
    }
    out.nodes.push_back(std::move(node));
  }
  for (const ValueId output : graph.outputs) out.outputs.push_back(keep(output));
  return out;
}

}  // namespace nlsplit
