// Where a stage may end.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline partition {

// Ascending; the last is the end of the graph. Not before a view, which has no work of its own, and not between a state
// and who reads it. So the layers of a model are what lies between two of them.
std::vector<size_t> find_cuts(const Graph& graph);

// At most `most` of them (two or more), the end among them: of equally many layers each, the one with the least bytes.
// cut_bytes: by node, as in SearchCosts.
std::vector<size_t> thin_cuts(std::vector<size_t> cuts, const std::vector<double>& cut_bytes, size_t most);

// Without those that differ from one beside them by next to no work: of cuts with less than `negligible` of the
// network's time between them, on every device, the first of those that the fewest bytes cross remains. So a table does
// not list the same plan twenty times, cut before and after each part of a normalization. node_seconds: [device][node];
// both as in SearchCosts.
inline constexpr double negligible_work = 1e-3;
std::vector<size_t> distinct_cuts(const std::vector<size_t>& cuts, const std::vector<std::vector<double>>& node_seconds,
                                  const std::vector<double>& cut_bytes, double negligible = negligible_work);

}  // namespace nlsplit::inline partition
