#include "partition/split_rules.h"

#include <algorithm>

#include "graph/ops.h"
#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

// [input of the node]; an input left out has no extents.
std::vector<TensorType> types_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId input : node.inputs) types.push_back(input.valid() ? graph.value(input).type : TensorType{});
  return types;
}

const Shape& result_of(const Graph& graph, const Node& node) { return graph.value(node.outputs[0]).type.shape; }

NodePiece whole(const Node& node) { return {std::vector<Region>(node.inputs.size()), node.attrs}; }

bool first_alike(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  return true;
}

bool broadcast_piece(const PieceQuery& q, NodePiece& piece) {
  for (size_t i = 0; i < q.inputs.size(); ++i) piece.inputs[i] = broadcast_part(q, q.inputs[i]);
  return true;
}

// Filters of some groups need the channels of these; filters of one group are a convolution of one group.
bool conv_channels(const PieceQuery& q, NodePiece& piece) {
  const int64_t group = attr_int(q.node.attrs, "group");
  const int64_t filters = q.out[1] / group, channels = q.inputs[1].shape[1];  // of a group
  const int64_t first = q.begin / filters, last = (q.end - 1) / filters;
  const bool of_whole_groups = q.begin % filters == 0 && q.end % filters == 0;
  if (!of_whole_groups && first != last) return false;
  if (group > 1) {
    piece.inputs[0] = along(1, first * channels, (last + 1) * channels);
    set_attr(piece.attrs, "group", last - first + 1);
  }
  for (size_t i = 1; i < q.inputs.size(); ++i) piece.inputs[i] = along(0, q.begin, q.end);
  return true;
}

bool transposed_conv_channels(const PieceQuery& q, NodePiece& piece) {
  const int64_t group = attr_int(q.node.attrs, "group"), filters = q.inputs[1].shape[1];  // of a group
  if (group == 1) {
    piece.inputs[1] = along(1, q.begin, q.end);
  } else {
    if (q.begin % filters != 0 || q.end % filters != 0) return false;
    const int64_t channels = q.inputs[0].shape[1] / group;
    piece.inputs[0] = piece.inputs[1] = along(0, q.begin / filters * channels, q.end / filters * channels);
    piece.inputs[0].axis = 1;
    set_attr(piece.attrs, "group", (q.end - q.begin) / filters);
  }
  if (q.inputs.size() > 2) piece.inputs[2] = along(0, q.begin, q.end);
  return true;
}

bool gemm_piece(const PieceQuery& q, NodePiece& piece) {
  const bool ta = attr_int(q.node.attrs, "transA") != 0, tb = attr_int(q.node.attrs, "transB") != 0;
  if (q.axis == 0)
    piece.inputs[0] = along(ta ? 1 : 0, q.begin, q.end);
  else
    piece.inputs[1] = along(tb ? 0 : 1, q.begin, q.end);
  if (q.inputs.size() > 2) piece.inputs[2] = broadcast_part(q, q.inputs[2]);
  return true;
}

bool matmul_piece(const PieceQuery& q, NodePiece& piece) {
  const size_t rank = q.out.size();
  const Shape &a = q.inputs[0].shape, &b = q.inputs[1].shape;
  if (a.size() < 2 || b.size() < 2) return false;
  if (q.axis + 1 == rank) {
    piece.inputs[1] = along(b.size() - 1, q.begin, q.end);
    if (q.inputs.size() > 2) piece.inputs[2] = along(0, q.begin, q.end);
    return true;
  }
  if (q.axis + 2 == rank) {
    piece.inputs[0] = along(a.size() - 2, q.begin, q.end);
    return true;
  }
  for (size_t i = 0; i < 2; ++i) piece.inputs[i] = broadcast_part(q, q.inputs[i]);
  return true;
}

// Axes that are reduced are gone, or have extent 1.
bool reduced_piece(const PieceQuery& q, const std::vector<int64_t>& given, NodePiece& piece) {
  const size_t rank = q.inputs[0].shape.size();
  std::vector<bool> reduced(rank, false);
  for (const int64_t one : given) {
    const auto axis = axis_of(one, rank);
    if (!axis.ok()) return false;
    reduced[*axis] = true;
  }
  const bool kept = attr_int(q.node.attrs, "keepdims") != 0;
  size_t out = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (reduced[axis] && !kept) continue;
    if (out++ != q.axis) continue;
    piece.inputs[0] = along(axis, q.begin, q.end);
    return !reduced[axis];
  }
  return false;
}

// Every operand has the part, unless the operator works along that axis.
bool beside_axis(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.inputs[0].shape.size());
  if (!axis.ok() || *axis == q.axis) return false;
  std::ranges::fill(piece.inputs, same_axis(q));
  return true;
}

bool layer_norm_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  return axis.ok() && q.axis < *axis && first_alike(q, piece);
}

bool norm_of_channels(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  for (size_t i = 1; q.axis == 1 && i < q.inputs.size(); ++i) piece.inputs[i] = along(0, q.begin, q.end);
  return true;
}

bool quantize_piece(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  for (size_t i = 1; i < q.inputs.size(); ++i) {
    const Shape& shape = q.inputs[i].shape;
    if (element_count(shape) == 1) continue;
    if (shape.size() != 1 || !axis.ok()) return false;
    if (*axis == q.axis) piece.inputs[i] = along(0, q.begin, q.end);
  }
  return true;
}

// Samples and heads are apart; so are queries, but each needs all keys and values that it sees: of a causal one those
// up to its own, so that the last of the piece's queries still is the last of its keys. Heads that share keys and
// values are a piece if they are all of some groups, or of one group.
bool attention_piece(const PieceQuery& q, NodePiece& piece) {
  const Shape &queries = q.inputs[0].shape, &keys = q.inputs[1].shape;
  if (q.axis == 3) {
    piece.inputs[2] = same_axis(q);
    return true;
  }
  const bool masked = q.inputs.size() > 3;
  if (masked) {
    const PieceQuery scores{q.node, q.inputs, {queries[0], queries[1], queries[2], keys[2]}, q.axis, q.begin, q.end};
    piece.inputs[3] = broadcast_part(scores, q.inputs[3]);
  }
  piece.inputs[0] = same_axis(q);
  Region of_keys;
  if (q.axis == 0) of_keys = same_axis(q);
  if (q.axis == 1) {
    const int64_t shared = queries[1] / keys[1], first = q.begin / shared, last = (q.end - 1) / shared;
    const bool of_whole_groups = q.begin % shared == 0 && q.end % shared == 0;
    if (!of_whole_groups && first != last) return false;
    of_keys = along(1, first, last + 1);
  }
  if (q.axis == 2 && attr_int(q.node.attrs, "causal") != 0) {
    of_keys = along(2, 0, q.end + keys[2] - queries[2]);
    if (masked) {
      if (piece.inputs[3].axis >= 0) return false;  // cut along two axes
      piece.inputs[3] = along(q.inputs[3].shape.size() - 1, 0, of_keys.end);
    }
  }
  piece.inputs[1] = piece.inputs[2] = of_keys;
  return true;
}

bool pool_piece(const PieceQuery& q, NodePiece& piece) {
  return q.axis < 2 ? first_alike(q, piece) : window_piece(q, piece);
}

// What an operator makes of each element alone, or of each pair that broadcasts.
bool is_function(Op op) {
  switch (op) {
    case Op::Relu:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::HardSwish:
    case Op::Exp:
    case Op::Sqrt:
    case Op::Neg:
    case Op::Erf:
    case Op::LeakyRelu:
    case Op::HardSigmoid:
    case Op::Clip:
    case Op::Gelu:
    case Op::Identity:
      return true;
    default:
      return op >= Op::Abs && op <= Op::Cast;
  }
}
bool broadcasts(Op op) {
  switch (op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
    case Op::Sum:
      return true;
    default:
      return op >= Op::Pow && op <= Op::Min;
  }
}

bool rule(const PieceQuery& q, NodePiece& piece) {
  const Op op = q.node.op;
  if (is_function(op)) return first_alike(q, piece);
  if (broadcasts(op)) return broadcast_piece(q, piece);
  switch (op) {
    case Op::Conv:
      return q.axis == 0 ? first_alike(q, piece) : q.axis == 1 ? conv_channels(q, piece) : window_piece(q, piece);
    case Op::ConvTranspose:
      return q.axis == 0   ? first_alike(q, piece)
             : q.axis == 1 ? transposed_conv_channels(q, piece)
                           : transposed_window_piece(q, piece);
    case Op::Gemm:
      return gemm_piece(q, piece);
    case Op::MatMul:
      return matmul_piece(q, piece);
    case Op::MaxPool:
    case Op::AveragePool:
    case Op::LpPool:
      return pool_piece(q, piece);
    case Op::GlobalAveragePool:
      return q.axis < 2 && first_alike(q, piece);
    case Op::BatchNormalization:
      return norm_of_channels(q, piece);
    case Op::InstanceNormalization:
      return q.axis < 2 && norm_of_channels(q, piece);
    case Op::LayerNormalization:
      return layer_norm_piece(q, piece);
    case Op::LRN:
      return q.axis != 1 && first_alike(q, piece);
    case Op::Softmax:
    case Op::LogSoftmax:
    case Op::CumSum:
    case Op::GatherElements:
      return beside_axis(q, piece);
    case Op::Attention:
      return attention_piece(q, piece);
    case Op::Concat:
      return concat_piece(q, piece);
    case Op::Reshape:
      return reshape_piece(q, piece);
    case Op::Flatten:
      return view_piece(q, piece);
    case Op::Transpose:
      piece.inputs[0] = along(static_cast<size_t>(attr_ints(q.node.attrs, "perm")[q.axis]), q.begin, q.end);
      return true;
    case Op::ReduceMean:
    case Op::ReduceL1:
    case Op::ReduceL2:
    case Op::ReduceLogSum:
    case Op::ReduceLogSumExp:
    case Op::ReduceMax:
    case Op::ReduceMin:
    case Op::ReduceProd:
    case Op::ReduceSum:
    case Op::ReduceSumSquare:
      return reduced_piece(q, attr_ints(q.node.attrs, "axes"), piece);
    case Op::ArgMax:
    case Op::ArgMin:
      return reduced_piece(q, {attr_int(q.node.attrs, "axis")}, piece);
    case Op::Pad:
      return pad_piece(q, piece);
    case Op::Slice:
      return slice_piece(q, piece);
    case Op::Gather:
      return gather_piece(q, piece);
    case Op::Expand:
      return expand_piece(q, piece);
    case Op::Tile:
      return attr_ints(q.node.attrs, "repeats")[q.axis] == 1 && first_alike(q, piece);
    case Op::QuantizeLinear:
    case Op::DequantizeLinear:
      return quantize_piece(q, piece);
    case Op::Resize:
      return resize_piece(q, piece);
    default:
      return false;  // nobody has looked, or it mixes elements along every axis
  }
}

// The types of the piece's inputs, and whether the operator table makes of them what the piece should be.
bool makes(const Node& node, const std::vector<TensorType>& inputs, const NodePiece& piece, const Shape& wanted) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Region& region = piece.inputs[i];
    if (!node.inputs[i].valid()) continue;
    if (is_empty(region)) {
      if (node.op != Op::Concat) return false;
      continue;
    }
    types.push_back(inputs[i]);
    if (region.axis < 0) continue;
    const auto axis = static_cast<size_t>(region.axis);
    if (axis >= inputs[i].shape.size() || region.begin < 0 || region.end > inputs[i].shape[axis]) return false;
    types.back().shape[axis] = region.end - region.begin;
  }
  const auto made = info(node.op).infer(types, piece.attrs);
  return made.ok() && (*made)[0].shape == wanted;
}

}  // namespace

std::optional<NodePiece> piece_of(const Graph& graph, const Node& node, int axis, int64_t begin, int64_t end) {
  const Shape& out = result_of(graph, node);
  if (node.outputs.size() != 1 || axis < 0 || static_cast<size_t>(axis) >= out.size() || begin >= end) return {};
  const std::vector<TensorType> inputs = types_of(graph, node);
  if (std::ranges::any_of(node.inputs, [](ValueId input) { return !input.valid(); })) return {};
  NodePiece piece = whole(node);
  if (!rule({node, inputs, out, static_cast<size_t>(axis), begin, end}, piece)) return {};
  Shape wanted = out;
  wanted[static_cast<size_t>(axis)] = end - begin;
  if (!makes(node, inputs, piece, wanted)) return {};
  return piece;
}

std::optional<NodePiece> samples_of_node(const Graph& graph, const Node& node, const std::vector<bool>& batched,
                                         int64_t begin, int64_t end) {
  const std::vector<TensorType> inputs = types_of(graph, node);
  NodePiece piece = whole(node);
  uint64_t mask = 0;
  size_t present = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid()) continue;
    if (present >= 64) return {};  // there is no bit for it
    if (batched[input.index()]) {
      mask |= uint64_t{1} << present;
      piece.inputs[i] = along(0, begin, end);
    }
    ++present;
  }
  if (mask == 0 || !info(node.op).keeps_batch(input_types(graph, node), mask, node.attrs)) return {};
  Shape wanted = result_of(graph, node);
  if (wanted.empty()) return {};
  wanted[0] = end - begin;
  if (node.op == Op::Reshape) set_attr(piece.attrs, "shape", wanted);  // it may have written the batch down
  if (!makes(node, inputs, piece, wanted)) return {};
  return piece;
}

int summed_axis(const Graph& graph, const Node& node) {
  if (node.inputs.size() < 2 || !node.inputs[1].valid() || graph.value(node.inputs[1]).kind != ValueKind::weight)
    return -1;
  if (node.op == Op::Conv) return attr_int(node.attrs, "group") == 1 ? 1 : -1;
  if (node.op == Op::Gemm) return attr_int(node.attrs, "transA") != 0 ? 0 : 1;
  if (node.op != Op::MatMul) return -1;
  const size_t a = graph.value(node.inputs[0]).type.shape.size(), b = graph.value(node.inputs[1]).type.shape.size();
  return a < 2 || b < 2 ? -1 : static_cast<int>(a) - 1;
}

std::optional<NodePiece> partial_sum_of(const Graph& graph, const Node& node, int64_t begin, int64_t end,
                                        bool with_bias) {
  const int axis = summed_axis(graph, node);
  if (axis < 0 || begin >= end) return {};
  const std::vector<TensorType> inputs = types_of(graph, node);
  NodePiece piece = whole(node);
  piece.inputs[0] = along(static_cast<size_t>(axis), begin, end);
  size_t rows = 0;  // of the weight
  if (node.op == Op::Conv) rows = 1;
  if (node.op == Op::Gemm) rows = attr_int(node.attrs, "transB") != 0 ? 1 : 0;
  if (node.op == Op::MatMul) rows = inputs[1].shape.size() - 2;
  piece.inputs[1] = along(rows, begin, end);
  Node without = node;
  std::vector<TensorType> types = inputs;
  if (!with_bias && node.inputs.size() > 2) {
    without.inputs.resize(2);
    piece.inputs.resize(2);
    types.resize(2);
  }
  if (!makes(without, types, piece, result_of(graph, node))) return {};
  return piece;
}

int column_axis(const Graph& graph, const Node& node) {
  if (node.inputs.size() < 2 || !node.inputs[1].valid() || graph.value(node.inputs[1]).kind != ValueKind::weight)
    return -1;
  if (node.op == Op::Conv || node.op == Op::ConvTranspose || node.op == Op::Gemm) return 1;
  if (node.op == Op::MatMul) return static_cast<int>(result_of(graph, node).size()) - 1;
  return -1;
}

int64_t column_grain(const Graph& graph, const Node& node) {
  if (node.op != Op::Conv && node.op != Op::ConvTranspose) return 1;
  const int64_t group = attr_int(node.attrs, "group");
  return group == 1 ? 1 : result_of(graph, node)[1] / group;
}

}  // namespace nlsplit
