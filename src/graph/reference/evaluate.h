// The slow reference evaluator: what every kernel is measured against. Plain loops, sums in double, no blocking, no tricks.
// Only tests link it.
#pragma once

#include <string>
#include <vector>

#include "graph/weights.h"

namespace nlsplit {

struct Tensor {
  TensorType type;
  std::vector<float> values;        // f32 only; integer tensors do not survive import
};

// One op with its epilogue (operands in order of the steps).
Tensor evaluate_op(Op op, const Attrs& attrs, const std::vector<const Tensor*>& inputs, const TensorType& output);

// The whole graph; `inputs` in the order of graph.inputs. Errors: counts or types that do not fit.
Result<std::vector<Tensor>> evaluate(const Graph& graph, const WeightStore& weights, const std::vector<Tensor>& inputs);

}  // namespace nlsplit
