#include <algorithm>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

bool all_are(const std::vector<int64_t>& list, int64_t value) {
  return std::ranges::all_of(list, [=](int64_t element) { return element == value; });
}

// Of a node whose result has its first input's type: are the elements where they were?
bool keeps_every_element(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::Identity:
    case Op::Reshape:
    case Op::Flatten:
    case Op::Cast:
    case Op::Expand:
      return true;
    case Op::Transpose:
      return std::ranges::is_sorted(attr_ints(node.attrs, "perm"));
    case Op::Pad:
      return all_are(attr_ints(node.attrs, "pads"), 0);
    case Op::Tile:
      return all_are(attr_ints(node.attrs, "repeats"), 1);
    case Op::Slice: {
      // All of an axis, forwards. Of the samples' axis all may be the one there is, and not all there are at another
      // batch.
      const auto rank = static_cast<int64_t>(graph.value(node.inputs[0]).type.shape.size());
      return std::ranges::all_of(attr_ints(node.attrs, "steps"), [](int64_t step) { return step > 0; }) &&
             std::ranges::none_of(attr_ints(node.attrs, "axes"), [=](int64_t axis) { return axis % rank == 0; });
    }
    case Op::Concat:
    case Op::Sum:
    case Op::Max:
    case Op::Mean:
    case Op::Min:
      return node.inputs.size() == 1;
    default:
      return false;
  }
}

}  // namespace

// One whose result is an output of the graph stays: outputs keep their names.
Result<Graph> remove_identity(const Graph& graph, WeightStore&) {
  Graph out = graph;
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node& node = out.nodes[i];
    const ValueId from = node.outputs[0], to = node.inputs[0];
    // A reshape to the same shape at batch 1 may be none at batch 8; with_batch keeps axis 0, so only equal ranks are
    // nothing.
    if (is_output[from.index()] || !node.epilogue.empty() || out.value(from).type != out.value(to).type) continue;
    if (!keeps_every_element(out, node)) continue;
    removed[i] = true;
    redirect(out, from, to);
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
