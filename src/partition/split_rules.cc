#include "partition/split_rules.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/operators/operator.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline partition {
namespace {

// [input of the node]; an input left out has no extents.
std::vector<TensorType> types_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (const ValueId input : node.inputs) types.push_back(input.valid() ? graph.value(input).type : TensorType{});
  return types;
}

const Shape& result_of(const Graph& graph, const Node& node) { return graph.value(node.outputs[0]).type.shape; }

NodePiece whole(const Node& node) { return {std::vector<Region>(node.inputs.size()), node.attrs}; }

// Whether the operator table makes of the piece's inputs what the piece should be. inputs: whole.
bool makes(const Node& node, std::vector<TensorType> inputs, const NodePiece& piece, const Shape& wanted) {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Region& region = piece.inputs[i];
    if (!node.inputs[i].valid()) continue;
    if (is_empty(region)) {
      if (node.op != Op::Concat) return false;
      continue;
    }
    TensorType& type = types.emplace_back(std::move(inputs[i]));
    if (region.axis < 0) continue;
    const auto axis = static_cast<size_t>(region.axis);
    if (axis >= type.shape.size() || region.begin < 0 || region.end > type.shape[axis]) return false;
    // No cut is between elements that share a scale.
    const int64_t block = axis + 1 == type.shape.size() ? block_of(type.dtype) : 1;
    if (region.begin % block != 0 || region.end % block != 0) return false;
    type.shape[axis] = region.end - region.begin;
  }
  const auto made = infer(node.op, types, piece.attrs);
  return made.ok() && (*made)[0].shape == wanted;
}

// How a node multiplies its first input by a weight; all -1: it does not.
WeightProduct product_of(const Graph& graph, const Node& node) {
  const ProductRule rule = info(node.op).product;
  if (rule == nullptr || node.inputs.size() < 2 || !node.inputs[1].valid() ||
      graph.value(node.inputs[1]).kind != ValueKind::weight)
    return {};
  return rule(input_types(graph, node), node.attrs);
}

// Elements of a product's weights that share a scale along one of their axes; else 1.
int64_t block_along(const Graph& graph, const Node& node, int axis) {
  if (axis < 0) return 1;
  const TensorType& weights = graph.value(node.inputs[1]).type;
  return static_cast<size_t>(axis) + 1 == weights.shape.size() ? block_of(weights.dtype) : 1;
}

}  // namespace

std::optional<NodePiece> piece_of(const Graph& graph, const Node& node, int axis, int64_t begin, int64_t end) {
  const Shape& out = result_of(graph, node);
  if (node.outputs.size() != 1 || axis < 0 || static_cast<size_t>(axis) >= out.size() || begin >= end) return {};
  const SplitRule rule = info(node.op).split;
  if (rule == no_split || std::ranges::any_of(node.inputs, [](ValueId input) { return !input.valid(); })) return {};
  std::vector<TensorType> inputs = types_of(graph, node);
  NodePiece piece = whole(node);
  if (!rule({node, inputs, out, static_cast<size_t>(axis), begin, end}, piece)) return {};
  Shape wanted = out;
  wanted[static_cast<size_t>(axis)] = end - begin;
  if (!makes(node, std::move(inputs), piece, wanted)) return {};
  return piece;
}

std::optional<NodePiece> samples_of_node(const Graph& graph, const Node& node, const std::vector<bool>& batched,
                                         int64_t begin, int64_t end) {
  std::vector<TensorType> inputs = types_of(graph, node);
  NodePiece piece = whole(node);
  uint64_t mask = 0;
  size_t present = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid()) continue;
    if (present >= 64) return {};  // there is no bit for it
    if (batched[input.index()]) {
      mask |= uint64_t{1} << present;
      piece.inputs[i] = {0, begin, end};
    }
    ++present;
  }
  if (mask == 0 || !info(node.op).keeps_batch(input_types(graph, node), mask, node.attrs)) return {};
  Shape wanted = result_of(graph, node);
  if (wanted.empty()) return {};
  wanted[0] = end - begin;
  if (node.op == Op::Reshape) set_attr(piece.attrs, "shape", wanted);  // it may have written the batch down
  if (!makes(node, std::move(inputs), piece, wanted)) return {};
  return piece;
}

int summed_axis(const Graph& graph, const Node& node) { return product_of(graph, node).summed; }

int64_t summed_grain(const Graph& graph, const Node& node) {
  const WeightProduct product = product_of(graph, node);
  return product.summed < 0 ? 1 : block_along(graph, node, product.weight_rows);
}

int64_t summed_experts(const Graph& graph, const Node& node) {
  return node.op == Op::Experts ? graph.value(node.inputs[3]).type.shape[0] : 0;
}

namespace {

std::optional<NodePiece> sum_of_experts(const Graph& graph, const Node& node, int64_t begin, int64_t end) {
  NodePiece piece = whole(node);
  for (size_t i = 3; i < 6; ++i) piece.inputs[i] = {0, begin, end};
  set_attr(piece.attrs, "first", attr_int(node.attrs, "first") + begin);
  if (begin >= end || !makes(node, types_of(graph, node), piece, result_of(graph, node))) return {};
  return piece;
}

}  // namespace

std::optional<NodePiece> partial_sum_of(const Graph& graph, const Node& node, int64_t begin, int64_t end,
                                        bool with_bias) {
  if (node.op == Op::Experts) return sum_of_experts(graph, node, begin, end);
  const WeightProduct product = product_of(graph, node);
  if (product.summed < 0 || begin >= end) return {};
  std::vector<TensorType> types = types_of(graph, node);
  NodePiece piece = whole(node);
  piece.inputs[0] = {product.summed, begin, end};
  piece.inputs[1] = {product.weight_rows, begin, end};
  Node without = node;
  if (!with_bias && node.inputs.size() > 2) {
    without.inputs.resize(2);
    piece.inputs.resize(2);
    types.resize(2);
  }
  if (!makes(without, std::move(types), piece, result_of(graph, node))) return {};
  return piece;
}

int column_axis(const Graph& graph, const Node& node) { return product_of(graph, node).columns; }

int64_t column_grain(const Graph& graph, const Node& node) {
  const WeightProduct product = product_of(graph, node);
  return std::lcm(product.grain, block_along(graph, node, product.weight_columns));
}

}  // namespace nlsplit::inline partition
