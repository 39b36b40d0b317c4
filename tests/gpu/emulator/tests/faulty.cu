#include <cuda_runtime.h>

#include "gpu/emulator/tests/faulty.h"

namespace nlsplit::testing {
namespace {

constexpr int threads = faulty_threads;

__global__ void tree(const float* from, float* to) {
  __shared__ float parts[threads];
  parts[threadIdx.x] = from[blockIdx.x * threads + threadIdx.x];
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) to[blockIdx.x] = parts[0];
}

__global__ void shuffles(const float* from, float* to) {
  __shared__ float of_warps[threads / 32];
  float value = from[blockIdx.x * threads + threadIdx.x];
  for (int other = warpSize / 2; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    const unsigned mask = 0x3u;  // two warps, two lanes
    if (threadIdx.x < 2) {
      float sum = of_warps[threadIdx.x];
      sum += __shfl_down_sync(mask, sum, 1, 2);
      sum = __shfl_sync(mask, sum, 0);
      if (threadIdx.x == 1) to[blockIdx.x] = sum;
    }
  }
}

__global__ void vectors(const float4* from, float4* to) {
  const unsigned i = blockIdx.x * threads + threadIdx.x;
  float4 value = from[i];
  value.x += 1;
  to[i] = value;
}

__global__ void without_barrier(const float* from, float* to) {
  __shared__ float parts[threads];
  parts[threadIdx.x] = from[blockIdx.x * threads + threadIdx.x];
  to[blockIdx.x * threads + threadIdx.x] = parts[threads - 1 - threadIdx.x];
}

__global__ void divergent_barrier(float* to) {
  if (threadIdx.x != 5) __syncthreads();
  to[blockIdx.x * threads + threadIdx.x] = 1;
}

__global__ void unwritten_shared(float* to) {
  __shared__ float parts[threads];
  if (blockIdx.x == 0) parts[threadIdx.x] = 1;  // what one block has written is not there for the next
  __syncthreads();
  to[blockIdx.x * threads + threadIdx.x] = parts[threadIdx.x];
}

__global__ void missing_lane(float* to) {
  float value = 1;
  if (threadIdx.x != 40) value = __shfl_xor_sync(0xffffffffu, value, 1);
  to[blockIdx.x * threads + threadIdx.x] = value;
}

__global__ void all_write(float* to) { to[0] = static_cast<float>(threadIdx.x); }

__global__ void reads_other_block(float* to) {
  to[blockIdx.x * threads + threadIdx.x] = 1;
  __syncthreads();
  if (blockIdx.x == 1) to[threads + threadIdx.x] += to[threadIdx.x];
}

__global__ void shifted(const float* from, float* to, int by) {
  const int i = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  to[i] = from[i + by];
}

}  // namespace

cudaError_t launch_tree(const float* from, float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(tree, blocks, threads, stream, from, to);
}
cudaError_t launch_shuffles(const float* from, float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(shuffles, blocks, threads, stream, from, to);
}
cudaError_t launch_vectors(const float4* from, float4* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(vectors, blocks, threads, stream, from, to);
}
cudaError_t launch_without_barrier(const float* from, float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(without_barrier, blocks, threads, stream, from, to);
}
cudaError_t launch_divergent_barrier(float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(divergent_barrier, blocks, threads, stream, to);
}
cudaError_t launch_unwritten_shared(float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(unwritten_shared, blocks, threads, stream, to);
}
cudaError_t launch_missing_lane(float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(missing_lane, blocks, threads, stream, to);
}
cudaError_t launch_all_write(float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(all_write, blocks, threads, stream, to);
}
cudaError_t launch_reads_other_block(float* to, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(reads_other_block, blocks, threads, stream, to);
}
cudaError_t launch_shifted(const float* from, float* to, int by, unsigned blocks, cudaStream_t stream) {
  return emulator::launch(shifted, blocks, threads, stream, from, to, by);
}

}  // namespace nlsplit::testing
