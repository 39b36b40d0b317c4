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

// What integers of an operator without run-time scalars are read as: indices below this.
inline int64_t indices_below(const ComputeDesc& desc) {
  switch (desc.op) {
    case Op::GatherGradient:
      return attr_int(desc.attrs, "extent");
    case Op::SoftmaxCrossEntropy:
      return desc.inputs[0].shape.back();
    case Op::SoftmaxCrossEntropyGradient:
      return desc.inputs[1].shape.back();
    default:
      return 1;
  }
}

inline std::vector<Tensor> kernel_operands(const ComputeDesc& desc, uint64_t seed) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : desc.inputs) {
    const uint64_t own = seed * 100 + tensors.size();
    auto largest = largest_scalar(desc, tensors.size());
    if (desc.op == Op::Experts && tensors.size() == 1) largest = attr_int(desc.attrs, "all") - 1;
    tensors.push_back(largest                ? random_indices(type, *largest + 1, own)
                      : is_whole(type.dtype) ? random_indices(type, indices_below(desc), own)
                                             : random_tensor(type, own));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool divisor = desc.op == Op::Div && i == 1;
    const bool positive = desc.op == Op::Sqrt || (desc.op == Op::BatchNormalization && i == 4) ||
                          (desc.op == Op::BatchNormalizationTrainingGradient && i == 4) ||
                          (desc.op == Op::BatchNormalizationScaleGradient && i == 3);
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
