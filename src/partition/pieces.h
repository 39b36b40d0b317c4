// Pieces of a graph's nodes (partition/split_rules.h), cached for equal nodes: a network repeats its blocks, and
// evaluating the rules takes most of the time of choosing a stage's split.
//
//   Pieces pieces(graph, batched);
//   if (const auto& part = pieces.of(node, SplitAxis::height, 2, 0, 28)) …   // references stay good
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "partition/plan.h"
#include "partition/split_rules.h"

namespace nlsplit::inline partition {

// Borrows both. Not for several threads at once.
class Pieces {
 public:
  using Piece = std::optional<NodePiece>;

  // batched: of graph/passes/passes.h; axis batch only.
  Pieces(const Graph& graph, const std::vector<bool>& batched);

  // piece_of(); along the batch samples_of_node(). node: of the graph.
  const Piece& of(const Node& node, int axis, int64_t begin, int64_t end);
  const Piece& of(const Node& node, SplitAxis how, int axis, int64_t begin, int64_t end);
  // partial_sum_of().
  const Piece& sum_of(const Node& node, int64_t begin, int64_t end, bool with_bias);

 private:
  // The first node that is equal, the kind of piece, and its arguments.
  using Key = std::array<int64_t, 4>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  template <class Find>
  const Piece& find(const Node& node, int64_t what, int64_t begin, int64_t end, const Find& find);
  size_t like(const Node& node);
  uint64_t hash_of(const Node& node) const;
  bool are_alike(const Node& a, const Node& b) const;

  const Graph& graph_;
  const std::vector<bool>& batched_;
  std::vector<size_t> like_;  // [node]; nodes.size(): not known yet
  std::unordered_multimap<uint64_t, size_t> by_hash_;
  std::unordered_map<Key, Piece, Hash> known_;
};

}  // namespace nlsplit::inline partition
