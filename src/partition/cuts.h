// Where a stage may end.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace nlsplit {

// Ascending; the last is the end of the graph. Not before a view, which has no work of its own. So the layers of a
// model are what lies between two of them.
std::vector<size_t> find_cuts(const Graph& graph);

}  // namespace nlsplit
