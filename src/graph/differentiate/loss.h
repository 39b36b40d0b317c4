// The loss as nodes of the graph, behind its first output.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

enum class Loss : uint8_t {
  // Mean of (y - target)² over all elements; `target` is a new input of the output's type.
  mean_squared_error,
  // Mean of SoftmaxCrossEntropy over all rows; `labels` is a new input of integers, one a row. The logits are the
  // output, or what the Softmax reads that makes it.
  softmax_cross_entropy,
};
std::span<const std::string_view> loss_names();  // in the order of the enum
// Error: none of them.
Result<Loss> parse_loss(std::string_view name);

struct GraphWithLoss {
  Graph graph;   // the loss is its only output
  ValueId loss;  // one number
};
// Errors: an output that is not of floats, or has no axis of classes; a value of the graph has the input's name.
Result<GraphWithLoss> with_loss(const Graph& graph, Loss loss);

// What a training changes: weights of floats that the loss depends on, but for a BatchNormalization's mean and variance
// and for constants that are made by a formula (positions, masks).
std::vector<ValueId> trained_weights(const GraphWithLoss& with, const WeightStore& weights);

}  // namespace nlsplit::inline graph
