// Loops as CUDA C, for NVRTC: one kernel, a thread for each point that loops keep apart, everything else in their order
// within it. The same operations as the interpreter's, so the same bits, where nothing is contracted (--fmad=false).
//
//   const CudaSource source = cuda_source(loops);      // extern "C" __global__ void generated(const float* in0, …)
//
// The text includes nothing. Its parameters are the operands and the result, in this order.
#pragma once

#include <string>

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

inline constexpr const char* cuda_function = "generated";

struct CudaSource {
  std::string text;
  int64_t threads = 0;    // of these each has work; more have none, fewer go round
  int block_threads = 0;  // of a block, as it should be launched
};
// Of verified loops whose result has elements.
CudaSource cuda_source(const Loops& loops);

}  // namespace nlsplit::inline kernels
