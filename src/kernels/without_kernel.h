// Computations that no executor runs yet: operators without a kernel, and the optimizer's updates. They are described,
// verified and costed like all others, so that a Program of a training step can be planned and simulated.
//
//   desc.kernel = no_kernel;          // "none ReluGradient(f32[8,64], f32[8,64]) -> f32[8,64]"
//   signature(update_desc(Optimizer::momentum, type))
//                      "momentum Identity(f32[16,3,3,3], f32[16,3,3,3], f32[16,3,3,3]) -> f32[16,3,3,3] f32[16,3,3,3]"
#pragma once

#include <optional>
#include <string_view>

#include "graph/optimizer.h"
#include "kernels/catalogue.h"

namespace nlsplit {

inline constexpr std::string_view no_kernel = "none";

// reads: the weight, its gradient, the optimizer's state; writes: the weight and the state.
ComputeDesc update_desc(Optimizer optimizer, const TensorType& weight);
std::optional<Optimizer> update_of(const ComputeDesc& desc);  // none: not an update

inline bool has_no_kernel(const ComputeDesc& desc) { return desc.kernel == no_kernel || update_of(desc).has_value(); }

// Of such a computation: row-major f32 (indices are integers), types as the operator infers them, no epilogue.
Status verify_without_kernel(const ComputeDesc& desc);

}  // namespace nlsplit
