// A graph in double precision: what gradients are checked with (central differences lose half of the digits).
#pragma once

#include <map>
#include <vector>

#include "graph/reference/array.h"

namespace nlsplit::inline graph {

// The values of `wanted`, every f32 value of the graph taken as f64. `values`: inputs, and weights instead of the
// store's. Errors: an input that is missing, a weight that is not in the store.
Result<std::vector<reference::Array>> evaluate_wide(const Graph& graph, const WeightStore& weights,
                                                    const std::map<ValueId, reference::Array>& values,
                                                    const std::vector<ValueId>& wanted);

}  // namespace nlsplit::inline graph
