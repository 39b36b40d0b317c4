// The names a user may call a cut by: of nodes, of the steps fused into them, and of the scopes they are in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline partition {

// A node's own name, then those of its fused steps, in the order they happen.
std::vector<std::string_view> names_of(const Node& node);

struct FoundLayer {
  size_t node = 0;
  std::string_view name;  // of the node or step that was found
  std::string_view last;  // the last name of that node: where a cut really is
};

// The last node called so, or below it; with a leading "=" the node called exactly so. Error: none, with the nearest
// names.
Result<FoundLayer> find_layer(const Graph& graph, std::string_view name);

}  // namespace nlsplit::inline partition
