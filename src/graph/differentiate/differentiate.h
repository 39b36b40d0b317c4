// Reverse-mode differentiation of a graph: gradients are ordinary nodes behind those of the forward pass, so costs,
// splits, kernels and schedules treat them like any other.
//
//   ASSIGN_OR_RETURN(Differentiated d, differentiate(graph, loss, {w1, w2}, weights));
//   d.gradients[0]            // the value that is ∂loss/∂w1, of w1's shape
//
// The forward nodes stay as they are and come first. A value that several nodes read gets the sum of their gradients
// (Add). Of the backward nodes those have phase `input` from which the gradient of an activation comes: an earlier
// stage of a pipeline waits for them, also if they make the gradient of a weight as well. All others make gradients of
// weights only, and may be computed later (Qi et al., "Zero Bubble Pipeline Parallelism", 2024, section 2: B and W).
#pragma once

#include <functional>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// What a node is for, and with it how often it is computed: `step` once a step, all others once a micro-batch.
enum class NodePhase : uint8_t { forward, input, weight, step };

struct Differentiated {
  Graph graph;                     // outputs: those of the forward graph, then `gradients`
  std::vector<NodePhase> phases;   // [node]
  std::vector<size_t> origins;     // [node]: the forward node that it is the gradient of, or itself
  std::vector<ValueId> gradients;  // [trained]; where parts were asked for, that of the first reader
};

// Does this result of the node change when a float that it reads changes a little? Gradients stop where not.
bool follows_its_inputs(const Node& node, const Value& output);

// Told of each trained weight, by its index, and of each node that reads it, from the last to the first, as soon as
// this node's part of its gradient is there: may put nodes behind it, which are of phase weight. The parts are not
// added.
using OnGradient = std::function<Status(GraphBuilder& graph, size_t trained, ValueId part)>;

// Where the parts of a value's gradient are added: `origins` of these Adds. Their order is the same.
enum class SumPlace : uint8_t {
  readers,  // each at the reader whose part it adds: a gradient goes back from stage to stage, added on its way
  maker,    // all where the value is made: readers that stand side by side do not wait for each other
};

// `loss`: a value of one element. `trained`: weights of the graph. Constants that the gradients need are added to
// `weights`. `seed`: the gradient of the loss by itself: 1, or the share of a micro-batch. Errors: a loss of several
// elements; a weight that is not of floats; a weight that the loss does not depend on; a node on the way that is of a
// training step itself, or has no gradient by that operand (names the node).
Result<Differentiated> differentiate(const Graph& graph, ValueId loss, const std::vector<ValueId>& trained,
                                     WeightStore& weights, double seed = 1, const OnGradient& on_gradient = {},
                                     SumPlace sums = SumPlace::readers);

}  // namespace nlsplit::inline graph
