// Costs of a training step for the search: every node's forward pass and both of its gradients, and messages in both
// directions over every cut.
#pragma once

#include "compile/kernel_graph.h"
#include "partition/search.h"

namespace nlsplit::inline ranking {

// Error: a missing cost.
Result<SearchCosts> training_search_costs(const KernelGraph& graph, int micro_batches, const Cluster& cluster,
                                          const CostTable& costs);

}  // namespace nlsplit::inline ranking
