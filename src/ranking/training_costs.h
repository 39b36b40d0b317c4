// What search needs to know of a training step: every node's forward pass and both of its gradients, and messages both
// ways over every cut.
#pragma once

#include "compile/kernel_graph.h"
#include "partition/search.h"

namespace nlsplit::inline ranking {

// Error: a missing cost.
Result<SearchCosts> training_search_costs(const KernelGraph& graph, int micro_batches, const Cluster& cluster,
                                          const CostTable& costs);

}  // namespace nlsplit::inline ranking
