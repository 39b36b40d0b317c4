// Computations that no executor runs yet: operators without a kernel at the device's level (gradients on a GPU). They
// are described, verified and costed like all others, so that a Program of a training step can be planned and
// simulated.
//
//   desc.kernel = KernelName::none;   // "none ReluGradient(f32[8,64], f32[8,64]) -> f32[8,64]"
#pragma once

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

inline bool has_no_kernel(const ComputeDesc& desc) { return desc.kernel.name == KernelName::none; }

// Of such a computation: row-major f32 (indices are integers), types as the operator infers them, no epilogue.
Status verify_without_kernel(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
