// Which nodes of a network, as its file has them, each computation of the optimized network stands for.
#pragma once

#include <vector>

#include "compile/kernel_graph.h"
#include "graph/graph.h"

namespace nlsplit::inline planning {

// [node of `original`]: the computed node of `kernels` that has taken it in, -1: none, as of a constant. It is the one
// whose result or name it has, or else the first that reads it by way of others without one.
std::vector<int> regions_of(const Graph& original, const KernelGraph& kernels);

}  // namespace nlsplit::inline planning
