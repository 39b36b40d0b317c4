// Small kernels, right and wrong, for what the emulator should find. Each is begun with `blocks` blocks of 64 threads.
#pragma once

#include <cuda_runtime_api.h>

namespace nlsplit::testing {

inline constexpr int faulty_threads = 64;

// Right: sums of each block's 64 elements, by a tree in shared memory, and by shuffles.
cudaError_t launch_tree(const float* from, float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_shuffles(const float* from, float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_vectors(const float4* from, float4* to, unsigned blocks, cudaStream_t stream);

// Wrong.
cudaError_t launch_without_barrier(const float* from, float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_divergent_barrier(float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_unwritten_shared(float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_missing_lane(float* to, unsigned blocks, cudaStream_t stream);
cudaError_t launch_all_write(float* to, unsigned blocks, cudaStream_t stream);          // the same element
cudaError_t launch_reads_other_block(float* to, unsigned blocks, cudaStream_t stream);  // what it writes
// to[thread of all] = from[thread of all + by]
cudaError_t launch_shifted(const float* from, float* to, int by, unsigned blocks, cudaStream_t stream);

}  // namespace nlsplit::testing
