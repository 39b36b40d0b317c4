#include "graph/pass_list.h"
#include "graph/rewrite.h"

namespace nlsplit {

// Identity, and views that change nothing. One whose result is an output of the graph stays: outputs keep their names.
Result<Graph> remove_identity(const Graph& graph, WeightStore&) {
  Graph out = graph;
  std::vector<bool> removed(out.nodes.size(), false);
  std::vector<bool> is_output(out.values.size(), false);
  for (const ValueId output : out.outputs) is_output[output.index()] = true;
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node& node = out.nodes[i];
    if (!is_view(node.op) || is_output[node.outputs[0].index()]) continue;
    const ValueId from = node.outputs[0], to = node.inputs[0];
    // A reshape to the same shape at batch 1 may be none at batch 8; with_batch keeps axis 0, so only equal ranks are
    // nothing.
    if (out.value(from).type != out.value(to).type) continue;
    removed[i] = true;
    redirect(out, from, to);
  }
  return compacted(out, removed);
}

}  // namespace nlsplit
