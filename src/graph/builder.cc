#include "graph/builder.h"

#include <fmt/format.h>

namespace nlsplit {

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

Result<ValueId> GraphBuilder::add(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs,
                                  std::string output_name) {
  Node node;
  node.op = op;
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  if (output_name.empty()) output_name = node.name;
  if (!node_names_.insert(node.name).second) return invalid_input(fmt::format("two nodes are called {}", node.name));
  if (!value_names_.insert(output_name).second)
    return invalid_input(fmt::format("two values are called {}", output_name));
  auto types = info(op).infer(input_types(graph_, node), node.attrs);
  if (!types) {
    Error error = types.error();
    error.message = fmt::format("node {} ({}): {}", node.name, name_of(op), error.message);
    return error;
  }
  const ValueId out(graph_.values.size());
  node.outputs = {out};
  graph_.values.push_back(
      {std::move(output_name), std::move((*types)[0]), ValueKind::node, NodeId(graph_.nodes.size()), {}});
  graph_.nodes.push_back(std::move(node));
  return out;
}

void GraphBuilder::output(ValueId value) { graph_.outputs.push_back(value); }

Graph GraphBuilder::finish() && { return std::move(graph_); }

}  // namespace nlsplit
