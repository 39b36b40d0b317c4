// What each operator does with pieces: which parts of its inputs a part of its result needs, and with which attributes
// the same operator then computes exactly that part. One rule serves every way of splitting, because it looks
// backwards: rows 10 to 20 of a 3x3 convolution need rows 9 to 21 of the image (clipped at its edges, where padding
// stays), channels 0 to 32 need all of the image and the filters 0 to 32.
//
//   const auto piece = piece_of(graph, conv, 2, 10, 20);      // axis 2, elements [10, 20) of the result
//   piece->inputs[0]                                          // {axis 2, [9, 21)}
//
// An operator, axis or range without a rule has no piece (nullopt): then it is computed whole. Every piece is checked
// against the operator table: its type is the result's, cut.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace nlsplit {

// Part of a value: [begin, end) along one axis, all of the others.
struct Region {
  int axis = -1;  // -1: all of it
  int64_t begin = 0, end = 0;
  friend bool operator==(const Region&, const Region&) = default;
};
inline bool is_empty(const Region& region) { return region.axis >= 0 && region.begin >= region.end; }

struct NodePiece {
  std::vector<Region> inputs;  // [input of the node]; an empty one is left out (of a Concat)
  Attrs attrs;
};

// Of a node with one result: its elements [begin, end) along `axis`. Operands of the epilogue have the result's shape,
// so the same part of them is needed.
std::optional<NodePiece> piece_of(const Graph& graph, const Node& node, int axis, int64_t begin, int64_t end);

// Samples [begin, end) of every result. `batched`: which values have one sample for each index of axis 0.
std::optional<NodePiece> samples_of_node(const Graph& graph, const Node& node, const std::vector<bool>& batched,
                                         int64_t begin, int64_t end);

// Conv of one group, Gemm, MatMul by a weight: the axis of the first input that is summed over; -1: of no other node.
int summed_axis(const Graph& graph, const Node& node);
// Its sum over [begin, end) alone, without the epilogue; the bias is in it if `with_bias`. Such sums over all parts add
// up to the node's result before its epilogue, in another order of additions.
std::optional<NodePiece> partial_sum_of(const Graph& graph, const Node& node, int64_t begin, int64_t end,
                                        bool with_bias);

// The axis of the result that the weight's own columns or filters become: 1 of Conv, ConvTranspose and Gemm, the last
// of a MatMul by a weight; -1: of all others.
int column_axis(const Graph& graph, const Node& node);
// The extent of Conv's groups on that axis: pieces of whole groups need no other input channels. 1 of one group.
int64_t column_grain(const Graph& graph, const Node& node);

// ---- for the rules themselves (split_rules.cc, split_moves.cc, split_windows.cc)

struct PieceQuery {
  const Node& node;
  const std::vector<TensorType>& inputs;
  const Shape& out;  // of the first result
  size_t axis;
  int64_t begin, end;
};
inline Region along(size_t axis, int64_t begin, int64_t end) { return {static_cast<int>(axis), begin, end}; }
inline Region same_axis(const PieceQuery& q) { return along(q.axis, q.begin, q.end); }
// Axes are counted from the last; an operand of extent 1, or without the axis, is every part's.
Region broadcast_part(const PieceQuery& q, const TensorType& type);

// All of these expect attrs to be the node's, inputs whole. Of Conv, ConvTranspose and pools along a spatial axis:
bool window_piece(const PieceQuery& query, NodePiece& piece);
bool transposed_window_piece(const PieceQuery& query, NodePiece& piece);
// Of Resize and Pad along any axis.
bool resize_piece(const PieceQuery& query, NodePiece& piece);
bool pad_piece(const PieceQuery& query, NodePiece& piece);
// Of what only moves elements, along any axis.
bool view_piece(const PieceQuery& q, NodePiece& piece);
bool reshape_piece(const PieceQuery& q, NodePiece& piece);
bool concat_piece(const PieceQuery& q, NodePiece& piece);
bool slice_piece(const PieceQuery& q, NodePiece& piece);
bool gather_piece(const PieceQuery& q, NodePiece& piece);
bool expand_piece(const PieceQuery& q, NodePiece& piece);

}  // namespace nlsplit
