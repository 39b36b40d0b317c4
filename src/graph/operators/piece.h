// Which part of its inputs a part of an operator's result needs, and with which attributes the same operator then
// computes exactly that part. One rule serves every way of splitting, because it looks backwards: rows 10 to 20 of a
// 3x3 convolution need rows 9 to 21 of the image (clipped at its edges, where padding stays), channels 0 to 32 need all
// of the image and the filters 0 to 32. partition/split_rules.h makes pieces of nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

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

// Elements [begin, end) of the result along `axis`.
struct PieceQuery {
  const Node& node;
  const std::vector<TensorType>& inputs;
  const Shape& out;  // of the first result
  size_t axis;
  int64_t begin, end;
};

// Expects attrs to be the node's and inputs whole. false: such a part cannot be computed alone.
using SplitRule = bool (*)(const PieceQuery& query, NodePiece& piece);
inline constexpr SplitRule no_split = nullptr;

}  // namespace nlsplit::inline graph
