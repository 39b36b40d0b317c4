// float16 and bfloat16 on CPUs: kernel "widened" turns its operands into float32, lets another kernel of the catalogue
// compute that, and rounds the result. Here: which one, and what it is given.
//
//   ComputeDesc wide = widened(desc);                      // the same of f32
//   const auto by = kernel_of_widened(desc);               // KernelName::gemm
//   Widened room = widened_of(desc, isa, workers);         // where in the workspace what lies
#pragma once

#include <optional>
#include <vector>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// All f32 and nothing constant: weights are widened call by call, so that those in memory stay halves. No kernel yet.
ComputeDesc widened(const ComputeDesc& desc);
// The kernel that a plain float32 computation gets, by any level; none: only generated code or the reference loops take
// it.
std::optional<KernelName> kernel_of_widened(const ComputeDesc& desc);

// Floats, from the beginning of the workspace.
struct Widened {
  std::vector<int64_t> inputs, outputs;
  int64_t workspace = 0;  // of the other kernel
  Bytes size;             // of all
};
Widened widened_of(const ComputeDesc& desc, Isa isa, int workers);

}  // namespace nlsplit::inline kernels
