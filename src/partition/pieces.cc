#include "partition/pieces.h"

#include <algorithm>

#include "base/hash.h"

namespace nlsplit::inline partition {
namespace {

// Kinds of pieces other than those along an axis (0 or more).
constexpr int64_t samples = -1, sum_without_bias = -2, sum_with_bias = -3;

bool same_type(const Graph& graph, ValueId a, ValueId b) {
  if (!a.valid() || !b.valid()) return a.valid() == b.valid();
  const Value &x = graph.value(a), &y = graph.value(b);
  return x.type == y.type && (x.kind == ValueKind::weight) == (y.kind == ValueKind::weight);
}

}  // namespace

Pieces::Pieces(const Graph& graph, const std::vector<bool>& batched)
    : graph_(graph), batched_(batched), like_(graph.nodes.size(), graph.nodes.size()) {}

size_t Pieces::Hash::operator()(const Key& key) const { return hash_bytes(key.data(), sizeof(key)); }

// Of its operator and its extents.
uint64_t Pieces::hash_of(const Node& node) const {
  auto hash = static_cast<uint64_t>(node.op);
  const auto add = [&](const std::vector<ValueId>& values) {
    for (const ValueId value : values) {
      if (!value.valid()) continue;
      const Shape& shape = graph_.value(value).type.shape;
      hash = hash_bytes(shape.data(), shape.size() * sizeof(shape[0]), hash);
    }
  };
  add(node.inputs);
  add(node.outputs);
  return hash;
}

// The rules look at nothing else of a node.
bool Pieces::are_alike(const Node& a, const Node& b) const {
  const auto same = [&](ValueId x, ValueId y) { return same_type(graph_, x, y); };
  const auto moves_along = [&](ValueId x, ValueId y) {
    return !x.valid() || batched_.empty() || batched_[x.index()] == batched_[y.index()];
  };
  return a.op == b.op && a.attrs == b.attrs && std::ranges::equal(a.inputs, b.inputs, same) &&
         std::ranges::equal(a.outputs, b.outputs, same) && std::ranges::equal(a.inputs, b.inputs, moves_along);
}

size_t Pieces::like(const Node& node) {
  const auto n = static_cast<size_t>(&node - graph_.nodes.data());
  size_t& known = like_[n];
  if (known < graph_.nodes.size()) return known;
  const uint64_t hash = hash_of(node);
  const auto [begin, end] = by_hash_.equal_range(hash);
  const auto same =
      std::find_if(begin, end, [&](const auto& entry) { return are_alike(graph_.nodes[entry.second], node); });
  if (same != end) return known = same->second;
  by_hash_.emplace(hash, n);
  return known = n;
}

template <class Find>
const Pieces::Piece& Pieces::find(const Node& node, int64_t what, int64_t begin, int64_t end, const Find& find) {
  const auto [at, added] = known_.try_emplace({static_cast<int64_t>(like(node)), what, begin, end});
  if (added) at->second = find();
  return at->second;
}

const Pieces::Piece& Pieces::of(const Node& node, int axis, int64_t begin, int64_t end) {
  return find(node, axis, begin, end, [&] { return piece_of(graph_, node, axis, begin, end); });
}

const Pieces::Piece& Pieces::of(const Node& node, SplitAxis how, int axis, int64_t begin, int64_t end) {
  if (how != SplitAxis::batch) return of(node, axis, begin, end);
  return find(node, samples, begin, end, [&] { return samples_of_node(graph_, node, batched_, begin, end); });
}

const Pieces::Piece& Pieces::sum_of(const Node& node, int64_t begin, int64_t end, bool with_bias) {
  return find(node, with_bias ? sum_with_bias : sum_without_bias, begin, end,
              [&] { return partial_sum_of(graph_, node, begin, end, with_bias); });
}

}  // namespace nlsplit::inline partition
