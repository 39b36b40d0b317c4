#include "graph/builder.h"

#include <fmt/format.h>

namespace nlsplit::inline graph {

GraphBuilder::GraphBuilder(std::string name) { graph_.name = std::move(name); }

ValueId GraphBuilder::input(std::string name, TensorType type) {
  const ValueId id(graph_.values.size());
  value_names_.insert(name);
  graph_.values.push_back({std::move(name), std::move(type), ValueKind::input, {}, {}});
  graph_.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::weight(std::string name, TensorType type, ContentId content) {
  const ValueId id(graph_.values.size());
  value_names_.insert(name);
  graph_.values.push_back({std::move(name), std::move(type), ValueKind::weight, {}, content});
  return id;
}

ValueId GraphBuilder::state(std::string name, TensorType type) {
  const ValueId id = weight(std::move(name), std::move(type), {});
  graph_.values[id.index()].state = true;
  return id;
}

Result<ValueId> GraphBuilder::add(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs,
                                  std::string output_name) {
  ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                   add_all(op, std::move(name), std::move(inputs), std::move(attrs), {std::move(output_name)}));
  return outputs[0];
}

Result<std::vector<ValueId>> GraphBuilder::add_all(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs,
                                                   const std::vector<std::string>& output_names) {
  Node node;
  node.op = op;
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  if (!node_names_.insert(node.name).second) return invalid_input(fmt::format("two nodes are called {}", node.name));
  auto types = infer(op, input_types(graph_, node), node.attrs);
  if (!types) {
    Error error = types.error();
    error.message = fmt::format("node {} ({}): {}", node.name, name_of(op), error.message);
    return error;
  }
  for (size_t i = 0; i < types->size(); ++i) {
    std::string output_name = i < output_names.size() ? output_names[i] : "";
    if (output_name.empty()) output_name = i == 0 ? node.name : fmt::format("{}.{}", node.name, i);
    if (!value_names_.insert(output_name).second)
      return invalid_input(fmt::format("two values are called {}", output_name));
    node.outputs.push_back(ValueId(graph_.values.size()));
    graph_.values.push_back(
        {std::move(output_name), std::move((*types)[i]), ValueKind::node, NodeId(graph_.nodes.size()), {}});
  }
  std::vector<ValueId> outputs = node.outputs;
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

void GraphBuilder::output(ValueId value) { graph_.outputs.push_back(value); }

Graph GraphBuilder::finish() && { return std::move(graph_); }

Result<GraphBuilder> reopen(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!node.epilogue.empty()) return invalid_input(fmt::format("node {} is fused", node.name));
  }
  GraphBuilder builder(graph.name);
  for (size_t v = 0, n = 0; v < graph.values.size();) {
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::input) {
      builder.input(value.name, value.type), ++v;
    } else if (value.state) {
      builder.state(value.name, value.type), ++v;
    } else if (value.kind == ValueKind::weight) {
      builder.weight(value.name, value.type, value.content), ++v;
    } else {
      const Node& node = graph.nodes[n++];
      std::vector<std::string> names;
      for (const ValueId output : node.outputs) names.push_back(graph.value(output).name);
      ASSIGN_OR_RETURN(const auto made, builder.add_all(node.op, node.name, node.inputs, node.attrs, names));
      for (const ValueId id : made) CHECK(id.index() == v++, "values in the order of their nodes");
    }
  }
  for (const ValueId output : graph.outputs) builder.output(output);
  return builder;
}

}  // namespace nlsplit::inline graph
