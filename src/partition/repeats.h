// Repeated blocks of a network: the layers of a transformer, the residual blocks of a stage. They are found in the
// graph alone; names mean nothing.
//
//   for (const Repeat& repeat : find_repeats(graph)) …   // llama: {begin 2, period 18, count 80}
#pragma once

#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline partition {

// Nodes [begin + k * period, begin + (k + 1) * period) for k < count are isomorphic: the same operators with the same
// attributes and types, wired alike among each other. What they read from outside is the same value for all, or the
// value at the same place of the block before; a first block that reads something else is not counted.
struct Repeat {
  size_t begin = 0, period = 0;  // nodes
  size_t count = 0;              // 2 or more
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Ascending; no two of them share a node. Of two that do, the one of more nodes is kept.
std::vector<Repeat> find_repeats(const Graph& graph);

// At most `most` of these cuts (two or more), the end among them, for a search that cannot look at all. Of every
// repeated block its border, which is the cut that the fewest bytes cross; between blocks and within them as many
// others as there is room for, the ones with the least bytes of equally long parts. cut_bytes: by node, as in
// SearchCosts.
std::vector<size_t> coarse_cuts(const std::vector<size_t>& cuts, const std::vector<Repeat>& repeats,
                                const std::vector<double>& cut_bytes, size_t most);

}  // namespace nlsplit::inline partition
