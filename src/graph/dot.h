// A Graph as a picture, for Graphviz: `nlsim show MODEL --dot | dot -Tsvg -o model.svg`.
#pragma once

#include <string>

#include "graph/graph.h"

namespace nlsplit::inline graph {

// A box for each node: its layers, operators and result; a dashed one for a view. Inputs and outputs are ovals. Weights
// are not drawn: a box says how many elements it reads of them.
std::string to_dot(const Graph& graph);

}  // namespace nlsplit::inline graph
