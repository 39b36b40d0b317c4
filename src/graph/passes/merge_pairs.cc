#include <algorithm>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

bool reshapes(Op op) { return op == Op::Reshape || op == Op::Flatten; }

// The node in front, if it is of the same kind and nothing is fused behind either.
const Node* in_front(const Graph& graph, const Node& node) {
  const Value& input = graph.value(node.inputs[0]);
  if (input.kind != ValueKind::node || !node.epilogue.empty()) return nullptr;
  const Node& front = graph.node(input.producer);
  const bool alike = reshapes(node.op) ? reshapes(front.op) : node.op == Op::Transpose && front.op == Op::Transpose;
  return alike && front.epilogue.empty() ? &front : nullptr;
}

// Axis 0 is copied where it is the same, so that it follows the batch.
bool becomes_one_reshape(const Graph& graph, Node& node, ValueId from) {
  const Shape& in = graph.value(from).type.shape;
  Shape shape = graph.value(node.outputs[0]).type.shape;
  if (std::ranges::find(shape, 0) != shape.end()) return false;  // in the attribute it would mean a copy
  if (!shape.empty() && !in.empty() && shape[0] == in[0]) shape[0] = 0;
  node.op = Op::Reshape;
  node.attrs.clear();
  set_attr(node.attrs, "shape", std::move(shape));
  return true;
}

void become_one_transpose(Node& node, const Node& front) {
  const std::vector<int64_t>& first = attr_ints(front.attrs, "perm");
  std::vector<int64_t> perm;
  for (const int64_t axis : attr_ints(node.attrs, "perm")) perm.push_back(first[static_cast<size_t>(axis)]);
  set_attr(node.attrs, "perm", std::move(perm));
}

bool changes_nothing(const Graph& graph, const Node& node) {
  if (node.op == Op::Transpose) return std::ranges::is_sorted(attr_ints(node.attrs, "perm"));
  return graph.value(node.inputs[0]).type == graph.value(node.outputs[0]).type;
}

}  // namespace

// A chain becomes one node, sweep by sweep from its front: each takes the place of the one before. One that has nothing
// left to do goes, or is an Identity where an output of the graph needs its name. So do those that nobody reads now:
// what they read should look as little read as it is to the passes behind.
Result<Graph> merge_pairs(const Graph& graph, WeightStore& weights) {
  Graph out = graph;
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    Node& node = out.nodes[i];
    const Node* front = node.op == Op::Transpose || reshapes(node.op) ? in_front(out, node) : nullptr;
    if (front == nullptr) continue;
    const ValueId from = front->inputs[0], made = node.outputs[0];
    if (node.op == Op::Transpose) {
      become_one_transpose(node, *front);
    } else if (!becomes_one_reshape(out, node, from)) {
      continue;
    }
    node.inputs[0] = from;
    if (!changes_nothing(out, node)) continue;
    if (is_output[made.index()]) {
      node.op = Op::Identity;
      node.attrs.clear();
    } else {
      removed[i] = true;
      redirect(out, made, from);
    }
  }
  return remove_dead(compacted(out, removed), weights);
}

}  // namespace nlsplit::inline graph
