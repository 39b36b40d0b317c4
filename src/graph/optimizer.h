// Optimizers: what a step does to each weight, given its gradient g, and the states it keeps from step to step.
//
//   sgd        w -= rate g
//   momentum   v = decay v + g; w -= rate v                          Polyak 1964; as in PyTorch's SGD
//   adam       m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;       Kingma and Ba, "Adam", ICLR 2015, algorithm 1;
//              t += 1; w -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e)
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

enum class Optimizer : uint8_t { sgd, momentum, adam };

std::span<const Optimizer> all_optimizers();
std::string_view name_of(Optimizer optimizer);

// The node of one weight: its inputs are the weight, the gradient, the states; its outputs the new weight, the new
// states.
Op update_op(Optimizer optimizer);
Attrs update_attrs(Optimizer optimizer, double learning_rate);  // the others are PyTorch's usual values
double usual_learning_rate(Optimizer optimizer);                // of the examples in PyTorch's documentation
bool is_update(Op op);

// What it keeps of a weight, zero at first: 0, 1 or 2 tensors of the weight's type; adam also the number of steps.
std::vector<TensorType> update_states(Optimizer optimizer, const TensorType& weight);

}  // namespace nlsplit::inline graph
