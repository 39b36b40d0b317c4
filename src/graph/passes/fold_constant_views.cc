#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {

// What else a file computes of constants is folded at import; an operator imported as several leaves reshapes of its
// parameters. A constant that others read too stays, so that it is not held twice.
Result<Graph> fold_constant_views(const Graph& graph, WeightStore&) {
  Graph out = graph;
  std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node node = out.nodes[i];
    const ValueId from = node.inputs[0];
    if (!is_view(node.op) || is_output[node.outputs[0].index()]) continue;
    if (out.value(from).kind != ValueKind::weight || uses[from.index()] != 1) continue;
    // The view's own value becomes the constant.
    Value& view = out.values[node.outputs[0].index()];
    view.kind = ValueKind::weight;
    view.producer = NodeId();
    view.content = out.value(from).content;
    removed[i] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
