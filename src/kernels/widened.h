// float16 and bfloat16 on CPUs: kernel "widened" turns its operands into float32, lets another kernel of the catalogue
// compute that, and rounds the result. Here: which one, and what it is given.
//
//   ComputeDesc wide = widened(desc);                      // the same of f32
//   const KernelInfo* by = kernel_of_widened(desc);        // "gemm"
//   Widened room = widened_of(desc, isa, workers);         // where in the workspace what lies
#pragma once

#include <vector>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

inline constexpr std::string_view widened_kernel = "widened";  // without the level

// All f32 and nothing constant: weights are widened call by call, so that those in memory stay halves.
ComputeDesc widened(const ComputeDesc& desc);
// The kernel that a plain float32 computation gets, by any level; nullptr: none but the reference loops.
const KernelInfo* kernel_of_widened(const ComputeDesc& desc);

// Floats, from the beginning of the workspace.
struct Widened {
  std::vector<int64_t> inputs, outputs;
  int64_t workspace = 0;  // of the other kernel
  Bytes size;             // of all
};
Widened widened_of(const ComputeDesc& desc, Isa isa, int workers);

}  // namespace nlsplit::inline kernels
