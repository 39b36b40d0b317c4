#include "partition/cuts.h"

#include "graph/ops.h"

namespace nlsplit {

std::vector<size_t> find_cuts(const Graph& graph) {
  std::vector<size_t> cuts;
  for (size_t n = 1; n < graph.nodes.size(); ++n) {
    if (!is_view(graph.nodes[n].op)) cuts.push_back(n);
  }
  cuts.push_back(graph.nodes.size());
  return cuts;
}

}  // namespace nlsplit
