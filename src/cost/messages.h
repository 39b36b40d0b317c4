// In which element type a value travels from one device to another (Cluster::messages). The device that makes it
// converts it, rounding to the nearest, ties to even; whoever receives it converts it back. What predicts and what
// compiles ask the same function.
#pragma once

#include "graph/graph.h"

namespace nlsplit::inline cost {

// Types that f32 values may travel in: f32, f16, bf16.
bool may_travel_as(DType type);

// root: no view. messages: Cluster::messages. As they are travel the graph's inputs and outputs, what TopK finds, whose
// order decides, and all that is not f32.
DType travels_as(const Graph& graph, ValueId root, bool is_output, DType messages);

// The message of a value of `type`: as many elements, in the same layout.
TensorType traveling(TensorType type, DType as);

}  // namespace nlsplit::inline cost
