// What passes share: who reads a value, and putting a graph in order after nodes were taken out.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace nlsplit {

// How often each value is read by nodes, plus once for each time it is an output of the graph.
std::vector<int> use_counts(const Graph& graph);

// Everybody who read `from` reads `to`.
void redirect(Graph& graph, ValueId from, ValueId to);

// Without the nodes marked in `removed` and without values nobody makes or reads; ids are given anew in the order of
// the text form: inputs, then for each node the weights it is the first to read, then its outputs.
Graph compacted(const Graph& graph, const std::vector<bool>& removed);

}  // namespace nlsplit
