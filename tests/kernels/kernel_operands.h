// Operands for any computation: near-normal values, but where an operator wants others.
//
//   const std::vector<Tensor> inputs = kernel_operands(desc, seed);
//   run_kernel(library, desc, pointers(inputs));
#pragma once

#include <cmath>
#include <vector>

#include "kernels/catalogue.h"
#include "testing/tensors.h"

namespace nlsplit::testing {

inline bool is_recurrent(Op op) { return op == Op::LSTM || op == Op::GRU || op == Op::RNN; }

inline std::vector<Tensor> kernel_operands(const ComputeDesc& desc, uint64_t seed) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : desc.inputs) {
    const uint64_t own = seed * 100 + tensors.size();
    const auto largest = largest_scalar(desc, tensors.size());
    tensors.push_back(largest ? random_indices(type, *largest + 1, own) : random_tensor(type, own));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool divisor = desc.op == Op::Div && i == 1;
    const bool positive = desc.op == Op::Sqrt || (desc.op == Op::BatchNormalization && i == 4);
    for (float& v : tensors[i].values) {
      if (divisor || positive) v = std::abs(v) + 0.25f;
      // As a trained network's: the sums stay near 1, where the functions are not flat.
      if (is_recurrent(desc.op) && (i == 1 || i == 2)) v /= std::sqrt(static_cast<float>(desc.inputs[i].shape[2]));
    }
  }
  return tensors;
}

inline std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> all;
  for (const Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

}  // namespace nlsplit::testing
