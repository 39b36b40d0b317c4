#include "graph/reference/wide.h"

#include <fmt/format.h>

#include <optional>

namespace nlsplit::inline graph {
namespace {

using reference::Array;
using reference::Arrays;

TensorType widened(TensorType type) {
  if (type.dtype == DType::f32) type.dtype = DType::f64;
  return type;
}

}  // namespace

Result<std::vector<Array>> evaluate_wide(const Graph& graph, const WeightStore& weights,
                                         const std::map<ValueId, Array>& values, const std::vector<ValueId>& wanted) {
  std::vector<std::optional<Array>> made(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (const auto given = values.find(ValueId(static_cast<uint32_t>(i))); given != values.end()) {
      made[i] = given->second;
    } else if (value.kind == ValueKind::weight) {
      ASSIGN_OR_RETURN(std::string raw, weights.materialise(value.content));
      made[i] = reference::to_array(tensor_of(value.type, std::move(raw)));
    } else if (value.kind == ValueKind::input) {
      return invalid_input(fmt::format("input {} is missing", value.name));
    }
    if (made[i]) made[i]->type = widened(value.type);
  }
  for (const Node& node : graph.nodes) {
    CHECK(node.epilogue.empty(), "gradients are of graphs before fusion");
    Arrays in;
    for (const ValueId id : node.inputs) in.push_back(id.valid() ? &*made[id.index()] : nullptr);
    std::vector<Array> outputs;
    for (const ValueId id : node.outputs) outputs.push_back(reference::zeros(widened(graph.value(id).type)));
    reference::general(node.op, node.attrs, in, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) made[node.outputs[i].index()] = std::move(outputs[i]);
  }
  std::vector<Array> answers;
  for (const ValueId id : wanted) answers.push_back(*made[id.index()]);
  return answers;
}

}  // namespace nlsplit::inline graph
