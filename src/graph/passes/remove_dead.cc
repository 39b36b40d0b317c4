#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {

// Nodes from which no output can be reached, backwards in one sweep.
Result<Graph> remove_dead(const Graph& graph, WeightStore&) {
  std::vector<bool> needed(graph.values.size(), false), removed(graph.nodes.size(), true);
  for (const ValueId output : graph.outputs) needed[output.index()] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    for (const ValueId output : graph.nodes[i].outputs) {
      if (needed[output.index()]) removed[i] = false;
    }
    if (removed[i]) continue;
    for (const ValueId read : reads_of(graph.nodes[i])) needed[read.index()] = true;
  }
  return compacted(graph, removed);
}

}  // namespace nlsplit::inline graph
