// How far a kernel's result may be from the reference's.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/catalogue.h"
#include "testing/tensors.h"

namespace nlsplit::testing {

// Errors of a sum grow with its terms' magnitude, about 1 each. Winograd's transforms multiply by up to 8 and cancel.
inline Tolerance tolerance_of(const ComputeDesc& desc) {
  double terms = 1;
  if (desc.op == Op::Conv)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[0]);
  if (desc.op == Op::ConvTranspose)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[1]);
  if (desc.op == Op::ConvWeightGradient)
    terms = static_cast<double>(element_count(desc.inputs[1].shape)) / static_cast<double>(desc.inputs[1].shape[1]);
  if (desc.op == Op::Gemm || desc.op == Op::MatMul || desc.op == Op::Linear) terms = 600;
  if (desc.op == Op::Experts) {  // three products in a row, of values up to some hundreds
    const auto inner = static_cast<double>(desc.inputs[3].shape[1] * desc.inputs[3].shape[2]);
    return {2e-5, 2e-6 * (1 + inner)};
  }
  if (desc.op == Op::Attention || desc.op == Op::CachedAttention || desc.op == Op::PagedAttention) return {1e-5, 1e-5};
  static const std::set<KernelName> by_winograd = {KernelName::conv_winograd, KernelName::conv_winograd_plain,
                                                   KernelName::conv_transpose_winograd,
                                                   KernelName::conv_weight_gradient_winograd};
  const double factor = by_winograd.contains(desc.kernel.name) ? 10 : 1;
  return {2e-5 * factor, 2e-6 * factor * (1 + std::sqrt(terms)) * std::max(1.0, std::sqrt(terms / 600))};
}

}  // namespace nlsplit::testing
