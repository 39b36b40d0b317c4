// Weights of a type with scales.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "testing/tensors.h"

namespace nlsplit {

// A weight of near-normal values, rounded to the type.
inline ValueId scaled_weight(GraphBuilder& builder, WeightStore& weights, const std::string& name,
                             const TensorType& type, uint64_t seed) {
  const Tensor values = random_tensor({DType::f32, type.shape}, seed);
  const std::vector<double> reals(values.values.begin(), values.values.end());
  return builder.weight(name, type, weights.add_bytes(type, raw_of(type.dtype, std::span<const double>(reals))));
}

}  // namespace nlsplit
