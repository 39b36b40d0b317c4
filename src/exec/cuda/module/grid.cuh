// How a kernel's threads share its elements, and how a kernel is begun.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {

__device__ inline int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Without nvcc a CPU is to run it: tests/gpu/emulator, which brings its own (simt.h).
#ifdef __CUDACC__
using Blocks = unsigned;
#else
using Blocks = emulator::Blocks;
#endif

// Begins a kernel of block_threads threads a block.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), Blocks blocks, cudaStream_t stream, const Arguments&... arguments) {
#ifdef __CUDACC__
  kernel<<<blocks, block_threads, 0, stream>>>(arguments...);
  return cudaGetLastError();
#else
  return emulator::launch(kernel, blocks, block_threads, stream, arguments...);
#endif
}

}  // namespace nlsplit::cuda
