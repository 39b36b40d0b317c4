#include "graph/onnx/transposes.h"

#include <algorithm>
#include <numeric>

namespace nlsplit::inline graph {

std::vector<int64_t> order_of(size_t axes) {
  std::vector<int64_t> order(axes);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

bool changes_nothing(const std::vector<int64_t>& perm) { return perm == order_of(perm.size()); }

Transposed seen_through(const GraphBuilder& graph, Transposed x) {
  for (;;) {
    const Value& value = graph.graph().value(x.of);
    if (value.kind != ValueKind::node) return x;
    const Node& node = graph.graph().node(value.producer);
    const size_t axes = value.type.shape.size();
    // A permutation that is none is for the type rules to refuse.
    const bool sound = x.perm.size() == axes && std::ranges::is_permutation(x.perm, order_of(axes));
    if (node.op != Op::Transpose || !sound) return x;
    const std::vector<int64_t>& first = attr_ints(node.attrs, "perm");
    for (int64_t& axis : x.perm) axis = first[static_cast<size_t>(axis)];
    x.of = node.inputs[0];
  }
}

std::vector<int64_t> without_axes(const std::vector<int64_t>& perm, const std::vector<bool>& dropped) {
  std::vector<int64_t> left;
  for (size_t i = 0; i < perm.size(); ++i) {
    if (dropped[i]) continue;
    int64_t axis = perm[i];
    for (size_t k = 0; k < perm.size(); ++k) axis -= dropped[k] && perm[k] < perm[i] ? 1 : 0;
    left.push_back(axis);
  }
  return left;
}

}  // namespace nlsplit::inline graph
