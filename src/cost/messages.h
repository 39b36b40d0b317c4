// The element type in which a value travels from one device to another (Cluster::messages). The sender converts the
// value, rounding to the nearest, ties to even (q8_0: graph/q8_0.h); the receiver converts it back. The search and the
// compiler use the same function.
#pragma once

#include "graph/graph.h"

namespace nlsplit::inline cost {

// Types that f32 values may travel in: f32, f16, bf16, q8_0.
bool may_travel_as(DType type);

// root: not a view. messages: Cluster::messages. Not converted: the graph's inputs and outputs, results of TopK (whose
// order matters), and values that are not f32. With q8_0 messages a value whose last axis is not a multiple of the
// block travels as f16.
DType travels_as(const Graph& graph, ValueId root, bool is_output, DType messages);

// Bytes of all messages with the parts of a value, at least. Parts of outputs are no outputs; parts may have whole
// blocks where the value has none; what travels as it is has not less. Of a value of a graph that is known as well.
double least_message_bytes(const TensorType& type, DType messages);
double least_message_bytes(const Graph& graph, ValueId root, DType messages);

// As which type messages round: promises are by it. Those of q8_0 as operands of products with weights in blocks.
DType rounds_as(DType travels_as);

// The message of a value of `type`: as many elements, in the same layout.
TensorType traveling(TensorType type, DType as);

}  // namespace nlsplit::inline cost
