#include "graph/dot.h"

#include <fmt/format.h>

#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

// In a quoted string of the dot language a backslash begins an escape; "\n" is a new line of a label.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

std::string label_of(const Graph& graph, const Node& node) {
  std::string names = escaped(node.name), ops(name_of(node.op));
  for (const EpilogueStep& step : node.epilogue) {
    names += ", " + escaped(step.name);
    ops += fmt::format(" + {}", name_of(step.op));
  }
  std::string label = names + "\\n" + ops;
  int64_t weights = 0;
  for (const ValueId read : reads_of(node)) {
    if (graph.value(read).kind == ValueKind::weight && !graph.value(read).state)
      weights += element_count(graph.value(read).type.shape);
  }
  if (weights > 0) label += fmt::format("\\n{} weights", weights);
  for (const ValueId output : node.outputs) label += "\\n" + to_string(graph.value(output).type);
  return label;
}

// "n3" for the node that makes a value, "v0" for an input or a weight.
std::string origin(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return value.kind == ValueKind::node ? fmt::format("n{}", value.producer.index()) : fmt::format("v{}", id.index());
}

}  // namespace

std::string to_dot(const Graph& graph) {
  std::string out = fmt::format("digraph \"{}\" {{\n  node [shape=box];\n", escaped(graph.name));
  const auto add_oval = [&](const std::string& id, ValueId value) {
    out += fmt::format("  {} [shape=oval, label=\"{}\\n{}\"];\n", id, escaped(graph.value(value).name),
                       to_string(graph.value(value).type));
  };
  for (const ValueId input : graph.inputs) add_oval(origin(graph, input), input);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    out += fmt::format("  n{} [label=\"{}\"{}];\n", n, label_of(graph, node), is_view(node.op) ? ", style=dashed" : "");
    for (const ValueId read : reads_of(node)) {
      if (graph.value(read).kind != ValueKind::weight) out += fmt::format("  {} -> n{};\n", origin(graph, read), n);
    }
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const ValueId output = graph.outputs[i];
    const std::string id = fmt::format("o{}", i);
    add_oval(id, output);
    if (graph.value(output).kind != ValueKind::weight) out += fmt::format("  {} -> {};\n", origin(graph, output), id);
  }
  return out + "}\n";
}

}  // namespace nlsplit::inline graph
