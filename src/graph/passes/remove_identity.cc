#include <algorithm>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

bool all_are(const std::vector<int64_t>& list, int64_t value) {
  return std::ranges::all_of(list, [=](int64_t element) { return element == value; });
}

// All of an axis, forwards. Of the samples' axis all may be the one there is, and not all there are at another batch.
bool takes_all(const Graph& graph, const Node& slice) {
  const auto rank = static_cast<int64_t>(graph.value(slice.inputs[0]).type.shape.size());
  return std::ranges::all_of(attr_ints(slice.attrs, "steps"), [](int64_t step) { return step > 0; }) &&
         std::ranges::none_of(attr_ints(slice.attrs, "axes"), [=](int64_t axis) { return axis % rank == 0; });
}

// Of a node whose result has its first input's type: are the elements where they were?
bool keeps_every_element(const Graph& graph, const Node& node) {
  if (has(node.op, traits::is_first_alone)) return node.inputs.size() == 1;
  return (node.op == Op::Transpose && std::ranges::is_sorted(attr_ints(node.attrs, "perm"))) ||
         (node.op == Op::Pad && all_are(attr_ints(node.attrs, "pads"), 0)) ||
         (node.op == Op::Tile && all_are(attr_ints(node.attrs, "repeats"), 1)) ||
         (node.op == Op::Slice && takes_all(graph, node));
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
