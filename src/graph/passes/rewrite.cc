#include "graph/passes/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nlsplit::inline graph {

std::vector<int> use_counts(const Graph& graph) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId read : reads_of(node)) ++uses[read.index()];
  }
  for (const ValueId output : graph.outputs) ++uses[output.index()];
  return uses;
}

std::vector<bool> output_flags(const Graph& graph) {
  std::vector<bool> flags(graph.values.size(), false);
  for (const ValueId output : graph.outputs) flags[output.index()] = true;
  return flags;
}

bool has_constant_parameters(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin() + 1, node.inputs.end(),
                     [&](ValueId input) { return !input.valid() || graph.value(input).kind == ValueKind::weight; });
}

std::string unused_name(const Graph& graph, const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; std::ranges::find(graph.values, name, &Value::name) != graph.values.end(); ++n)
    name = fmt::format("{}{}", wanted, n);
  return name;
}

ValueId add_weight(Graph& graph, const std::string& wanted, TensorType type, ContentId content) {
  const ValueId id(graph.values.size());
  graph.values.push_back({unused_name(graph, wanted), std::move(type), ValueKind::weight, {}, content});
  return id;
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

Graph compacted(Graph graph, const std::vector<bool>& removed) {
  Graph out;
  out.name = std::move(graph.name);
  std::vector<ValueId> renamed(graph.values.size());
  const auto keep = [&](ValueId id) {
    if (!id.valid()) return id;
    ValueId& now = renamed[id.index()];
    if (!now.valid()) {
      now = ValueId(out.values.size());
      out.values.push_back(std::move(graph.values[id.index()]));
    }
    return now;
  };
  for (const ValueId input : graph.inputs) out.inputs.push_back(keep(input));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (removed[i]) continue;
    Node& node = graph.nodes[i];
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

}  // namespace nlsplit::inline graph
