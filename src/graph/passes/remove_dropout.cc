#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {

// Outputs keep their names: one that is an output stays, and is its operand all the same.
Result<Graph> remove_dropout(const Graph& graph, WeightStore&) {
  Graph out = graph;
  std::vector<bool> removed(out.nodes.size(), false);
  const std::vector<bool> is_output = output_flags(out);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node& node = out.nodes[i];
    if (node.op != Op::Dropout || !node.epilogue.empty() || is_output[node.outputs[0].index()]) continue;
    removed[i] = true;
    redirect(out, node.outputs[0], node.inputs[0]);
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
