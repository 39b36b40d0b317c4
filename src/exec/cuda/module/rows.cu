// One block or one warp a row: softmax, means, normalisation, attention. Sums are taken in a fixed order, and who takes
// a row depends on its length alone, so that a row's bits do not depend on what else is computed.
#include <math_constants.h>

#include "exec/cuda/module/element.cuh"
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

struct Largest {
  __device__ static float none() { return -CUDART_INF_F; }
  // A NaN wins, so that it is seen.
  __device__ static float join(float a, float b) { return a > b || isnan(a) ? a : b; }
};
struct Total {
  __device__ static float none() { return 0.0f; }
  __device__ static float join(float a, float b) { return a + b; }
};

constexpr int warp_threads = 32, block_warps = block_threads / warp_threads;
constexpr unsigned all_lanes = 0xffffffffu;

// Of all lanes of the warp, to all of them; both sides of a join are the same two values, so all get the same bits.
template <class Join>
__device__ float over_warp(float value) {
#pragma unroll
  for (int apart = warp_threads / 2; apart > 0; apart /= 2)
    value = Join::join(value, __shfl_xor_sync(all_lanes, value, apart));
  return value;
}

// Of all threads of the block, to all of them: of each warp, then of the warps.
template <class Join>
__device__ float over_block(float value) {
  __shared__ float parts[block_warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const float own = over_warp<Join>(value);
  __syncthreads();  // the parts before have been read
  if (lane == 0) parts[warp] = own;
  __syncthreads();
  return over_warp<Join>(lane < block_warps ? parts[lane] : Join::none());
}

// Who takes a row: all threads of a block, or those of a warp, for rows so short that most of a block would have
// nothing to do.
struct ByBlock {
  static constexpr int threads = block_threads, rows = 1;  // rows: of a block at a time
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int64_t first_row() { return blockIdx.x; }
  template <class Join>
  __device__ static float over(float value) {
    return over_block<Join>(value);
  }
};
struct ByWarp {
  static constexpr int threads = warp_threads, rows = block_warps;
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % warp_threads; }
  __device__ static int64_t first_row() {
    return static_cast<int64_t>(blockIdx.x) * rows + static_cast<int>(threadIdx.x) / warp_threads;
  }
  template <class Join>
  __device__ static float over(float value) {
    return over_warp<Join>(value);
  }
};
template <class By>
__device__ int64_t all_rows() {
  return static_cast<int64_t>(gridDim.x) * By::rows;
}

// with(ByBlock) or with(ByWarp); a lane of a warp takes 16 elements at most.
template <class With>
cudaError_t by_length(int64_t extent, const With& with) {
  constexpr int64_t longest = 16 * warp_threads;
  return extent <= longest ? with(ByWarp{}) : with(ByBlock{});
}

template <class By, class Join, class Value>
__device__ float over_row(int64_t extent, const Value& value) {
  float own = Join::none();
  for (int64_t i = By::thread(); i < extent; i += By::threads) own = Join::join(own, value(i));
  return By::template over<Join>(own);
}

// Row r begins here: rows lie side by side within `inner`.
__device__ int64_t row_begin(int64_t row, int64_t extent, int64_t inner) {
  return row / inner * extent * inner + row % inner;
}

template <class By, class T>
__global__ void run_softmax(const T* x, T* to, int64_t rows, int64_t extent, int64_t inner) {
  for (int64_t row = By::first_row(); row < rows; row += all_rows<By>()) {
    const int64_t begin = row_begin(row, extent, inner);
    const T* from = x + begin;
    const float top = over_row<By, Largest>(extent, [&](int64_t i) { return value_of(from[i * inner]); });
    const float sum = over_row<By, Total>(extent, [&](int64_t i) { return expf(value_of(from[i * inner]) - top); });
    for (int64_t i = By::thread(); i < extent; i += By::threads)
      store(to + begin + i * inner, expf(value_of(from[i * inner]) - top) / sum);
  }
}

template <class By, class T>
__global__ void run_mean(const T* x, T* to, int64_t rows, int64_t extent, int64_t inner) {
  for (int64_t row = By::first_row(); row < rows; row += all_rows<By>()) {
    const T* from = x + row_begin(row, extent, inner);
    const float sum = over_row<By, Total>(extent, [&](int64_t i) { return value_of(from[i * inner]); });
    if (By::thread() == 0) store(to + row, sum / static_cast<float>(extent));
  }
}

template <class By, class T>
__global__ void run_normalize(const T* x, const T* scale, const T* bias, T* to, int64_t rows, int64_t extent,
                              int64_t channels, bool one_a_row, double epsilon) {
  for (int64_t row = By::first_row(); row < rows; row += all_rows<By>()) {
    const T* from = x + row * extent;
    const auto count = static_cast<float>(extent);
    const float mean = over_row<By, Total>(extent, [&](int64_t i) { return value_of(from[i]); }) / count;
    const float squares = over_row<By, Total>(extent, [&](int64_t i) {
      const float apart = value_of(from[i]) - mean;
      return apart * apart;
    });
    const auto inverse = static_cast<float>(1 / sqrt(static_cast<double>(squares / count) + epsilon));
    for (int64_t i = By::thread(); i < extent; i += By::threads) {
      const int64_t p = one_a_row ? row % channels : i;
      const float y = (value_of(from[i]) - mean) * inverse * value_of(scale[p]);
      store(to + row * extent + i, bias != nullptr ? y + value_of(bias[p]) : y);
    }
  }
}

// One block a query. Keys come block_threads at a time: a thread a score, its exponential relative to the largest so
// far (kernels/layout.h has the sources), then a thread a column of the values.
template <class T>
__global__ void run_attention(const T* q, const T* k, const T* v, const T* mask, T* to, int64_t rows,
                              AttentionShape s) {
  constexpr int most_columns = most_attention_width / block_threads;  // of one thread
  __shared__ float weights[block_threads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t head = row / s.queries % s.heads, query = row % s.queries, sample = row / (s.queries * s.heads);
    const int64_t kv_head = sample * s.kv_heads + head / (s.heads / s.kv_heads);
    const T *keys = k + kv_head * s.keys * s.size, *values = v + kv_head * s.keys * s.value_size;
    const T* hidden = mask + (sample * s.mask_stride[0] + head * s.mask_stride[1] + query * s.mask_stride[2]);
    const int64_t seen = s.causal ? query + 1 + s.keys - s.queries : s.keys;
    float top = -CUDART_INF_F, sum = 0, result[most_columns] = {};
    for (int64_t first = 0; first < seen; first += block_threads) {
      const int64_t key = first + threadIdx.x;
      float score = -CUDART_INF_F;
      if (key < seen) {
        float product = 0;
        for (int64_t p = 0; p < s.size; ++p)
          product += value_of(q[row * s.size + p]) * value_of(keys[key * s.size + p]);
        score = product * s.scale + (mask != nullptr ? value_of(hidden[key * s.mask_stride[3]]) : 0.0f);
      }
      const float next = Largest::join(top, over_block<Largest>(score));
      const bool none = next == -CUDART_INF_F;  // no key counts so far
      const float shrink = none ? 0.0f : expf(top - next), weight = none ? 0.0f : expf(score - next);
      weights[threadIdx.x] = weight;
      sum = sum * shrink + over_block<Total>(weight);  // all have written their weight
      top = next;
      const int64_t count = seen - first < block_threads ? seen - first : block_threads;
#pragma unroll
      for (int c = 0; c < most_columns; ++c) {
        const int64_t column = static_cast<int64_t>(c) * block_threads + threadIdx.x;
        if (column >= s.value_size) break;
        float total = 0;
        for (int64_t j = 0; j < count; ++j) total += weights[j] * value_of(values[(first + j) * s.value_size + column]);
        result[c] = result[c] * shrink + total;
      }
    }
#pragma unroll
    for (int c = 0; c < most_columns; ++c) {
      const int64_t column = static_cast<int64_t>(c) * block_threads + threadIdx.x;
      if (column < s.value_size) store(to + row * s.value_size + column, top == -CUDART_INF_F ? 0.0f : result[c] / sum);
    }
  }
}

// The weights of a query's keys out of their scores. What it does not see weighs nothing. The weights may
// lie where the scores do: a thread writes only what it alone has read last.
template <class By, class T>
__global__ void run_attention_weights(const float* scores, const T* mask, T* to, int64_t first, int64_t rows,
                                      AttentionShape s) {
  for (int64_t own = By::first_row(); own < rows; own += all_rows<By>()) {
    const int64_t row = first + own;
    const int64_t head = row / s.queries % s.heads, query = row % s.queries, sample = row / (s.queries * s.heads);
    const T* hidden = mask + (sample * s.mask_stride[0] + head * s.mask_stride[1] + query * s.mask_stride[2]);
    const int64_t seen = s.causal ? query + 1 + s.keys - s.queries : s.keys;
    const float* from = scores + own * s.keys;
    const auto score = [&](int64_t key) {
      return from[key] + (mask != nullptr ? value_of(hidden[key * s.mask_stride[3]]) : 0.0f);
    };
    const float top = over_row<By, Largest>(seen, score);
    const bool none = top == -CUDART_INF_F;  // no key counts
    const float sum = none ? 1.0f : over_row<By, Total>(seen, [&](int64_t key) { return expf(score(key) - top); });
    for (int64_t key = By::thread(); key < s.keys; key += By::threads)
      store(to + own * s.keys + key, none || key >= seen ? 0.0f : expf(score(key) - top) / sum);
  }
}

unsigned row_blocks(int64_t rows) {
  constexpr int64_t most = 1 << 20;
  return static_cast<unsigned>(rows < most ? rows : most);
}
template <class By>
unsigned row_blocks(By, int64_t rows) {
  return row_blocks((rows + By::rows - 1) / By::rows);
}

}  // namespace

cudaError_t launch_softmax(Element type, const void* x, void* to, int64_t outer, int64_t extent, int64_t inner,
                           cudaStream_t stream) {
  const int64_t rows = outer * inner;
  return by_length(extent, [&](auto by) {
    return with_type(type, [&](auto one) {
      using T = decltype(one);
      return launch(run_softmax<decltype(by), T>, row_blocks(by, rows), stream, in<T>(x), out<T>(to), rows, extent,
                    inner);
    });
  });
}

cudaError_t launch_mean(Element type, const void* x, void* to, int64_t outer, int64_t extent, int64_t inner,
                        cudaStream_t stream) {
  const int64_t rows = outer * inner;
  return by_length(extent, [&](auto by) {
    return with_type(type, [&](auto one) {
      using T = decltype(one);
      return launch(run_mean<decltype(by), T>, row_blocks(by, rows), stream, in<T>(x), out<T>(to), rows, extent, inner);
    });
  });
}

cudaError_t launch_attention(Element type, const void* q, const void* k, const void* v, const void* mask, void* to,
                             const AttentionShape& shape, cudaStream_t stream) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_attention<T>, row_blocks(rows), stream, in<T>(q), in<T>(k), in<T>(v), in<T>(mask), out<T>(to),
                  rows, shape);
  });
}

cudaError_t launch_attention_weights(Element type, const float* scores, const void* mask, void* to, int64_t first,
                                     int64_t rows, const AttentionShape& shape, cudaStream_t stream) {
  return by_length(shape.keys, [&](auto by) {
    return with_type(type, [&](auto one) {
      using T = decltype(one);
      return launch(run_attention_weights<decltype(by), T>, row_blocks(by, rows), stream, scores, in<T>(mask),
                    out<T>(to), first, rows, shape);
    });
  });
}

cudaError_t launch_normalize(Element type, const void* x, const void* scale, const void* bias, void* to, int64_t rows,
                             int64_t extent, int64_t channels, bool one_a_row, double epsilon, cudaStream_t stream) {
  return by_length(extent, [&](auto by) {
    return with_type(type, [&](auto one) {
      using T = decltype(one);
      return launch(run_normalize<decltype(by), T>, row_blocks(by, rows), stream, in<T>(x), in<T>(scale), in<T>(bias),
                    out<T>(to), rows, extent, channels, one_a_row, epsilon);
    });
  });
}

}  // namespace nlsplit::cuda
