#include <fmt/format.h>

#include <unordered_map>

#include "base/hash.h"
#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// Constants are what their bytes are, under whatever name.
std::string operand(const Graph& graph, ValueId id) {
  if (!id.valid()) return "-";
  const Value& value = graph.value(id);
  if (value.kind != ValueKind::weight || value.state) return fmt::format("{}", id.index());
  return fmt::format("{}:{}", hex16(value.content.value), to_string(value.type));
}

// Equal for nodes that compute the same of the same.
std::string computation(const Graph& graph, const Node& node) {
  std::string text = fmt::format("{}{}", name_of(node.op), to_string(node.attrs));
  for (const ValueId input : node.inputs) text += " " + operand(graph, input);
  for (const EpilogueStep& step : node.epilogue)
    text += fmt::format(" + {}{} {}", name_of(step.op), to_string(step.attrs), operand(graph, step.operand));
  return text;
}

}  // namespace

// Common subexpressions, in one sweep: operands that were merged are the same by the time their readers are looked at.
Result<Graph> merge_common(const Graph& graph, WeightStore&) {
  Graph out = graph;
  std::unordered_map<std::string, size_t> known;
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const std::vector<ValueId> outputs = out.nodes[i].outputs;
    bool keeps_its_name = false;
    for (const ValueId output : outputs) keeps_its_name = keeps_its_name || is_output[output.index()];
    const auto [first, added] = known.try_emplace(computation(out, out.nodes[i]), i);
    if (added || keeps_its_name) continue;
    for (size_t k = 0; k < outputs.size(); ++k) redirect(out, outputs[k], out.nodes[first->second].outputs[k]);
    removed[i] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
