// Graphs within a node: what they read from around them, and a branch under names of its own, to be put in its place.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/onnx/onnx_file.h"

namespace nlsplit::inline graph {

// Names a node reads, those its graphs take from around them included; no empty ones.
std::vector<std::string> names_read(const OnnxNode& node);

// The same with `prefix` in front of every name it makes; its outputs are called `outputs` where it makes them itself.
OnnxSubgraph renamed(OnnxSubgraph graph, const std::string& prefix, const std::vector<std::string>& outputs);

}  // namespace nlsplit::inline graph
