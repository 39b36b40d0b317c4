// The GPU's part of the catalogue: what its kernels accept, under the levels "cuda" and "tf32". Their code is in
// exec/cuda/module. All work on row-major tensors and pack nothing.
//
//   choose_kernel(desc, Isa::cuda)                       // conv_cudnn_cuda
//   choose_kernel(desc, {Isa::cuda, Precision::tf32})    // conv_cudnn_tf32: products and convolutions multiply in TF32
//
// What none of these computes and loops can (kernels/generated/lower.h) is generated_cuda, unless so few threads would
// have so much to do that the host is faster. All else is host_cuda: operands are copied to the host, computed there by
// the reference loops, and the results copied back. A Program's text shows it, and a profile measures it with its
// copies.
#pragma once

#include <optional>
#include <span>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

inline constexpr int64_t most_value_size = 1024;  // of attention's values, each

// A MatMul as products of a batch, all a fixed distance apart (in elements); 0: the same operand for all.
struct BatchedProduct {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t a_stride = 0, b_stride = 0;
};
// none: the batches broadcast in a way that no fixed distance describes.
std::optional<BatchedProduct> batched_product_of(const ComputeDesc& desc);

// A tensor seen as [outer][axis][inner] around neighbouring axes; none: the reduced axes are not neighbours.
struct ReducedAxes {
  int64_t outer = 1, extent = 1, inner = 1;
};
std::optional<ReducedAxes> around_axes(const Shape& shape, std::span<const int64_t> axes);

// The pixels that a 1 x 1 convolution with a stride reads, as they lie in its workspace; none without a stride.
Bytes picked_pixels(const ComputeDesc& desc);

// Attention of `heads` of the keys' heads at a time, `rows` queries for each (of all heads that share its keys). The
// workspace: scores in f32, weights in the operands' type (f32: in the scores' place), the rest.
struct AttentionPasses {
  int64_t heads = 1, rows = 1;
  Bytes weights_begin, rest_begin;
};
AttentionPasses attention_passes_of(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
