#include <optional>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// The axis of its result that a bias of the operator has a value for each index of; none: it takes no bias now.
std::optional<size_t> bias_axis(const Graph& graph, const Node& node) {
  if (!node.epilogue.empty() || (node.inputs.size() > 2 && node.inputs[2].valid())) return std::nullopt;
  const ProductRule rule = info(node.op).product;
  const int axis = rule == nullptr ? -1 : rule(input_types(graph, node), node.attrs).columns;
  return axis < 0 ? std::nullopt : std::optional(static_cast<size_t>(axis));
}

// One value for each index of that axis, broadcast along all others.
bool is_bias(const TensorType& type, const TensorType& result, size_t axis) {
  const size_t rank = result.shape.size();
  if (type.dtype != DType::f32 || type.shape.size() > rank) return false;
  Shape aligned(rank - type.shape.size(), 1);
  aligned.insert(aligned.end(), type.shape.begin(), type.shape.end());
  Shape wanted(rank, 1);
  wanted[axis] = result.shape[axis];
  return aligned == wanted;
}

}  // namespace

// Conv(x, w) + b with a constant b for each channel becomes Conv(x, w, b); exporters write the biases of MatMul so,
// which in ONNX has none.
Result<Graph> fuse_bias(const Graph& graph, WeightStore&) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node add = out.nodes[i];
    if (add.op != Op::Add || !add.epilogue.empty()) continue;
    for (const size_t side : {0, 1}) {
      const ValueId from = add.inputs[side], bias = add.inputs[1 - side];
      const Value& value = out.value(from);
      if (value.kind != ValueKind::node || uses[from.index()] != 1 || out.value(bias).kind != ValueKind::weight)
        continue;
      Node& node = out.nodes[value.producer.index()];
      const auto axis = bias_axis(out, node);
      if (!axis || !is_bias(out.value(bias).type, value.type, *axis)) continue;
      const TensorType flat{DType::f32, {value.type.shape[*axis]}};
      const NodeId producer = value.producer;
      // The same bytes under another shape.
      const ValueId parameter = out.value(bias).type == flat
                                    ? bias
                                    : add_weight(out, out.value(bias).name + ".flat", flat, out.value(bias).content);
      node.inputs.resize(2);
      node.inputs.push_back(parameter);
      if (node.op == Op::Gemm) set_attr(node.attrs, "beta", 1.0);
      node.outputs = add.outputs;
      out.values[add.outputs[0].index()].producer = producer;
      removed[i] = true;
      break;
    }
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
