// The module's own kernels, as its host code sees them: plain figures and pointers into the GPU's memory. Each begins
// on `stream` and answers what CUDA said of that.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nlsplit::cuda {

inline constexpr int block_threads = 256;

// Enough blocks for one thread an element, or as many as then go round.
inline unsigned blocks_for(int64_t count, int threads = block_threads) {
  constexpr int64_t most = 1 << 20;
  const int64_t blocks = (count + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// What lies in memory. All kernels compute in float and round what they store.
enum class Element : int32_t { f32, f16, bf16 };

// What a step makes of x: of one operand with parameters a and b, or of two, x and the operand's element.
enum class Function : int32_t {
  relu,
  sigmoid,
  tanh,
  hard_swish,
  exp,
  sqrt,
  neg,
  erf,
  leaky_relu,
  hard_sigmoid,
  clip,
  gelu,
  gelu_tanh,
  same,
  scale,  // of x: x, x * a
  add,
  sub,
  mul,
  div  // of both
};

struct Step {
  Function function{};
  float a = 0, b = 0;
  const void* operand = nullptr;  // of the result's type, laid out like it
};
inline constexpr int most_steps = 8;  // of one pass
struct Steps {
  Step step[most_steps];
  int32_t count = 0;
};

inline constexpr int most_axes = 8;
// A walk over the result's elements, and where each lies in an operand: in elements.
struct Walk {
  int64_t extent[most_axes];
  int64_t stride[2][most_axes];  // of one or two operands; 0: repeated
  int32_t axes = 0;
};

template <class Index>
struct WindowShapeBy {
  Index batch, channels, h, w, out_channels, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, dilation_h,
      dilation_w, pad_top, pad_left, pad_bottom, pad_right, groups;
};
using WindowShape = WindowShapeBy<int64_t>;

inline constexpr int64_t most_attention_width = 1024;
struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size;
  int64_t mask_stride[4];  // of sample, head, query and key; 0: repeated
  float scale;
  bool causal;
};

inline constexpr int most_terms = 64;
struct Terms {
  const void* term[most_terms];
  int32_t count = 0;
};

// All operands and results of one call have one type, but for launch_cast.

// to[i] = steps(from[i]); to may be from.
cudaError_t launch_steps(Element type, const void* from, void* to, int64_t count, const Steps& steps,
                         cudaStream_t stream);
// to[i] = steps(function(a[…], b[…])), i going along the walk.
cudaError_t launch_broadcast(Element type, const void* a, const void* b, void* to, int64_t count, Function function,
                             const Walk& walk, const Steps& steps, cudaStream_t stream);
// to[i] = steps(function(a[i], b[i / inner % channels])).
cudaError_t launch_planes(Element type, const void* a, const void* b, void* to, int64_t count, Function function,
                          int64_t channels, int64_t inner, const Steps& steps, cudaStream_t stream);
cudaError_t launch_cast(Element from_type, const void* from, Element to_type, void* to, int64_t count,
                        cudaStream_t stream);
// Summed in float, in their order.
cudaError_t launch_terms(Element type, void* sum, const Terms& terms, int64_t count, cudaStream_t stream);
// x[outer][channels][inner]: (x - mean) * scale / sqrt(variance + epsilon) + bias, each one a channel.
cudaError_t launch_batch_norm(Element type, const void* x, const void* scale, const void* bias, const void* mean,
                              const void* variance, void* to, int64_t outer, int64_t channels, int64_t inner,
                              double epsilon, cudaStream_t stream);
cudaError_t launch_lrn(Element type, const void* x, void* to, int64_t outer, int64_t channels, int64_t inner,
                       int64_t size, float slope, float bias, float beta, cudaStream_t stream);

// x[outer][extent][inner], over `extent`.
cudaError_t launch_softmax(Element type, const void* x, void* to, int64_t outer, int64_t extent, int64_t inner,
                           cudaStream_t stream);
cudaError_t launch_mean(Element type, const void* x, void* to, int64_t outer, int64_t extent, int64_t inner,
                        cudaStream_t stream);
// Rows of `extent`, normalised, then scaled and shifted: by parameters of the element, or of the row, which is then
// its number modulo `channels`. bias: nullptr for none.
cudaError_t launch_normalize(Element type, const void* x, const void* scale, const void* bias, void* to, int64_t rows,
                             int64_t extent, int64_t channels, bool one_a_row, double epsilon, cudaStream_t stream);

// q[batch][heads][queries][size], k[batch][kv_heads][keys][size], v[batch][kv_heads][keys][value_size]; a query that
// sees no key gets zeros. mask: nullptr for none. value_size is at most most_attention_width.
cudaError_t launch_attention(Element type, const void* q, const void* k, const void* v, const void* mask, void* to,
                             const AttentionShape& shape, cudaStream_t stream);

// The second of attention's three steps, of `rows` queries from number `first` on (of all heads of all samples, in this
// order): scores[rows][keys], scaled, to weights to[rows][keys] of the type. f32: to may be the scores.
cudaError_t launch_attention_weights(Element type, const float* scores, const void* mask, void* to, int64_t first,
                                     int64_t rows, const AttentionShape& shape, cudaStream_t stream);

cudaError_t launch_conv(Element type, const void* x, const void* w, const void* bias, void* to,
                        const WindowShape& shape, cudaStream_t stream);
cudaError_t launch_max_pool(Element type, const void* x, void* to, const WindowShape& shape, cudaStream_t stream);
cudaError_t launch_average_pool(Element type, const void* x, void* to, const WindowShape& shape, bool count_pads,
                                cudaStream_t stream);

// to[i] = from[begin + …] along the walk's first strides; elements of 1, 2, 4, 8 or 16 bytes.
cudaError_t launch_strided(const void* from, void* to, int64_t begin, int64_t count, const Walk& walk, int64_t element,
                           cudaStream_t stream);
// [outer][indices][inner] out of table[outer][extent][inner]; an index below 0 counts from the end, one outside is the
// nearest inside.
cudaError_t launch_gather(const void* table, const void* indices, bool wide, void* to, int64_t outer, int64_t extent,
                          int64_t count, int64_t inner, int64_t element, cudaStream_t stream);

}  // namespace nlsplit::cuda
