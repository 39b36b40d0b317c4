// Shared code of the passes: the readers of a value, and renumbering a graph after nodes were removed.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

// How often each value is read by nodes, plus once for each time it is an output of the graph.
std::vector<int> use_counts(const Graph& graph);

// One flag a value: an output of the graph, which keeps its name.
std::vector<bool> output_flags(const Graph& graph);

// All inputs but the first are weights, or left out.
bool has_constant_parameters(const Graph& graph, const Node& node);

// `wanted`, or with the first number behind it that makes it no value's name.
std::string unused_name(const Graph& graph, const std::string& wanted);
// A weight more; its name is `wanted` if that is free.
ValueId add_weight(Graph& graph, const std::string& wanted, TensorType type, ContentId content);

// All readers of `from` read `to` instead.
void redirect(Graph& graph, ValueId from, ValueId to);

// Without the nodes marked in `removed` and without values that are not made or not read; new ids are in the order of
// the text form: inputs, then for each node the weights it is the first to read, then its outputs.
Graph compacted(Graph graph, const std::vector<bool>& removed);

}  // namespace nlsplit::inline graph
