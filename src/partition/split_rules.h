// Pieces of nodes, by the rules of their operators (graph/operators/piece.h).
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
#include "graph/operators/piece.h"

namespace nlsplit::inline partition {

// Of a node with one result: its elements [begin, end) along `axis`. Operands of the epilogue have the result's shape,
// so the same part of them is needed.
std::optional<NodePiece> piece_of(const Graph& graph, const Node& node, int axis, int64_t begin, int64_t end);

// Samples [begin, end) of every result. `batched`: which values have one sample for each index of axis 0.
std::optional<NodePiece> samples_of_node(const Graph& graph, const Node& node, const std::vector<bool>& batched,
                                         int64_t begin, int64_t end);

// Conv of one group, Gemm, MatMul or Linear by a weight: the axis of the first input that is summed over; -1: of no
// other node.
int summed_axis(const Graph& graph, const Node& node);
// Parts along it are whole multiples of this: elements of the weights that share a scale; else 1.
int64_t summed_grain(const Graph& graph, const Node& node);
// Its sum over [begin, end) alone, without the epilogue; the bias is in it if `with_bias`. Such sums over all parts add
// up to the node's result before its epilogue, in another order of additions.
std::optional<NodePiece> partial_sum_of(const Graph& graph, const Node& node, int64_t begin, int64_t end,
                                        bool with_bias);

// Experts of a mixture (axis 0 of its weights), which add up likewise: how many there are here; 0: it is none. The
// parts of partial_sum_of are then theirs, of a whole first input.
int64_t summed_experts(const Graph& graph, const Node& node);

// The axis of the result that the weight's own columns or filters become: 1 of Conv, ConvTranspose and Gemm, the last
// of a MatMul or Linear by a weight; -1: of all others.
int column_axis(const Graph& graph, const Node& node);
// The extent of Conv's groups on that axis: pieces of whole groups need no other input channels. Of a product the
// columns whose weights share a scale. Else 1.
int64_t column_grain(const Graph& graph, const Node& node);

}  // namespace nlsplit::inline partition
