#include <algorithm>
#include <optional>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

const std::vector<int64_t>& perm_of(const Node& transpose) { return attr_ints(transpose.attrs, "perm"); }

// The Transpose that makes it, which has no other reader.
const Node* transposed(const Graph& graph, ValueId value, const std::vector<int>& uses) {
  const Value& made = graph.value(value);
  if (made.kind != ValueKind::node || uses[value.index()] != 1) return nullptr;
  const Node& node = graph.node(made.producer);
  return node.op == Op::Transpose && node.epilogue.empty() ? &node : nullptr;
}

// The shape under which a constant meets the tensor before the transpose as it met the result: the bytes are the same
// only if one axis at most has an extent.
std::optional<Shape> before(const Value& constant, const Shape& result, const std::vector<int64_t>& perm) {
  const Shape& shape = constant.type.shape;
  const auto extended = std::ranges::count_if(shape, [](int64_t extent) { return extent != 1; });
  if (constant.kind != ValueKind::weight || shape.size() > result.size() || extended > 1) return std::nullopt;
  Shape aligned(result.size(), 1), turned_back(result.size(), 1);
  std::ranges::copy(shape, aligned.begin() + static_cast<std::ptrdiff_t>(result.size() - shape.size()));
  for (size_t axis = 0; axis < aligned.size(); ++axis) {
    if (aligned[axis] != 1 && aligned[axis] != result[axis]) return std::nullopt;  // it is the one that is repeated
    turned_back[static_cast<size_t>(perm[axis])] = aligned[axis];
  }
  return turned_back;
}

// What an element-wise node reads once its transposes are behind it.
struct Sunk {
  std::vector<ValueId> inputs;
  std::vector<NodeId> transposes;  // in front of it now
};

std::optional<Sunk> sink(Graph& graph, const Node& node, const std::vector<int>& uses) {
  if (!node.epilogue.empty()) return std::nullopt;
  const auto producer = [&](size_t i) { return graph.value(node.inputs[i]).producer; };
  const Node* first = transposed(graph, node.inputs[0], uses);
  if (has(node.op, traits::maps_elements)) {
    if (first == nullptr) return std::nullopt;
    return Sunk{{first->inputs[0]}, {producer(0)}};
  }
  if (!has(node.op, traits::is_step_with_operand)) return std::nullopt;
  const Node* second = transposed(graph, node.inputs[1], uses);
  if (first != nullptr && second != nullptr) {
    const bool alike =
        perm_of(*first) == perm_of(*second) && graph.value(node.inputs[0]).type == graph.value(node.inputs[1]).type;
    if (!alike) return std::nullopt;
    return Sunk{{first->inputs[0], second->inputs[0]}, {producer(0), producer(1)}};
  }
  if (first == nullptr && second == nullptr) return std::nullopt;
  const size_t side = first != nullptr ? 0 : 1;
  const Node& turned = first != nullptr ? *first : *second;
  const Value constant = graph.value(node.inputs[1 - side]);
  const Shape& result = graph.value(node.inputs[side]).type.shape;
  const auto shape = before(constant, result, perm_of(turned));
  if (!shape) return std::nullopt;
  Sunk sunk{{turned.inputs[0], turned.inputs[0]}, {producer(side)}};
  const bool scalar = element_count(*shape) == 1;  // the same everywhere
  sunk.inputs[1 - side] =
      scalar ? node.inputs[1 - side]
             : add_weight(graph, constant.name + ".turned", {constant.type.dtype, *shape}, constant.content);
  return sunk;
}

// Two that meet become one, or none: past a pair nothing would sink.
void meet(Graph& graph, size_t at, std::vector<int>& uses, const std::vector<bool>& is_output,
          std::vector<bool>& removed) {
  Node& node = graph.nodes[at];
  const Node* front = node.epilogue.empty() ? transposed(graph, node.inputs[0], uses) : nullptr;
  if (front == nullptr) return;
  const ValueId from = front->inputs[0], made = node.outputs[0];
  removed[graph.value(node.inputs[0]).producer.index()] = true;
  std::vector<int64_t> perm;
  for (const int64_t axis : perm_of(node)) perm.push_back(perm_of(*front)[static_cast<size_t>(axis)]);
  node.inputs[0] = from;
  if (!std::ranges::is_sorted(perm)) {
    set_attr(node.attrs, "perm", std::move(perm));
  } else if (is_output[made.index()]) {
    node.op = Op::Identity;
    node.attrs.clear();
  } else {
    removed[at] = true;
    uses[from.index()] += uses[made.index()] - 1;
    redirect(graph, made, from);
  }
}

// Once from front to back. moved: whether any sank.
Result<Graph> sweep(Graph out, WeightStore& weights, bool& moved) {
  std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    if (out.nodes[i].op == Op::Transpose) {
      meet(out, i, uses, is_output, removed);
      continue;
    }
    const Node node = out.nodes[i];
    const auto sunk = sink(out, node, uses);
    if (!sunk) continue;
    moved = true;
    const NodeId at = *std::ranges::max_element(sunk->transposes);
    for (const NodeId other : sunk->transposes) removed[other.index()] = other != at;
    const Node transpose = out.node(at);
    Value& between = out.values[transpose.outputs[0].index()];
    between.type.dtype = out.value(node.outputs[0]).type.dtype;
    between.type.shape = out.value(transpose.inputs[0]).type.shape;
    Node& above = out.nodes[at.index()];
    above = node;
    above.inputs = sunk->inputs;
    above.outputs = transpose.outputs;
    Node& below = out.nodes[i];
    below = transpose;
    below.inputs = {transpose.outputs[0]};
    below.outputs = node.outputs;
  }
  // Pairs whose front others read, too.
  return merge_pairs(compacted(out, removed), weights);
}

}  // namespace

// f(Transpose(x)) = Transpose(f(x)) element by element. The node and its Transpose (of two the later one) change
// places, and further down the same Transpose sinks on. Their results change names with them: what others read keeps
// its own. Again and again, since a pair that went may have been what kept another in its place; it ends because every
// Transpose only moves down.
Result<Graph> sink_transposes(const Graph& graph, WeightStore& weights) {
  Graph out = graph;
  for (bool moved = true; moved;) {
    moved = false;
    ASSIGN_OR_RETURN(out, sweep(std::move(out), weights, moved));
  }
  return out;
}

}  // namespace nlsplit::inline graph
