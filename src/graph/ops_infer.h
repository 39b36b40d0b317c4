// Type inference of each kind of operator; ops.cc puts them into the table. ops_infer.cc has those with kernels of
// their own, ops_infer_general.cc, ops_infer_index.cc and ops_infer_image.cc the others.
#pragma once

#include "graph/ops.h"

namespace nlsplit {

using Inferred = Result<std::vector<TensorType>>;

Inferred infer_conv(Types inputs, const Attrs& attrs);
Inferred infer_conv_transpose(Types inputs, const Attrs& attrs);
Inferred infer_gemm(Types inputs, const Attrs& attrs);
Inferred infer_matmul(Types inputs, const Attrs& attrs);
Inferred infer_broadcast(Types inputs, const Attrs& attrs);
Inferred infer_same(Types inputs, const Attrs& attrs);      // all inputs alike, and so the output
Inferred infer_function(Types inputs, const Attrs& attrs);  // of floats, element by element
Inferred infer_gelu(Types inputs, const Attrs& attrs);
Inferred infer_identity(Types inputs, const Attrs& attrs);
Inferred infer_pool(Types inputs, const Attrs& attrs);
Inferred infer_max_pool(Types inputs, const Attrs& attrs);
Inferred infer_global_pool(Types inputs, const Attrs& attrs);
Inferred infer_batch_norm(Types inputs, const Attrs& attrs);
Inferred infer_layer_norm(Types inputs, const Attrs& attrs);
Inferred infer_instance_norm(Types inputs, const Attrs& attrs);
Inferred infer_lrn(Types inputs, const Attrs& attrs);
Inferred infer_axis(Types inputs, const Attrs& attrs);  // as the input; the attribute `axis` must be one of its axes
Inferred infer_concat(Types inputs, const Attrs& attrs);
Inferred infer_reshape(Types inputs, const Attrs& attrs);
Inferred infer_flatten(Types inputs, const Attrs& attrs);
Inferred infer_transpose(Types inputs, const Attrs& attrs);
Inferred infer_reduce(Types inputs, const Attrs& attrs);
Inferred infer_pad(Types inputs, const Attrs& attrs);
Inferred infer_attention(Types inputs, const Attrs& attrs);
Inferred infer_lstm(Types inputs, const Attrs& attrs);
Inferred infer_gru(Types inputs, const Attrs& attrs);
Inferred infer_rnn(Types inputs, const Attrs& attrs);

// Element-wise and along axes (ops_infer_general.cc).
Inferred infer_reduce_any(Types inputs, const Attrs& attrs);  // of bool, too
Inferred infer_not(Types inputs, const Attrs& attrs);
Inferred infer_bits(Types inputs, const Attrs& attrs);  // of integers; one operand, or two that broadcast
Inferred infer_test(Types inputs, const Attrs& attrs);  // of floats; the result is bool
Inferred infer_cast(Types inputs, const Attrs& attrs);
Inferred infer_pow(Types inputs, const Attrs& attrs);
Inferred infer_prelu(Types inputs, const Attrs& attrs);
Inferred infer_logic(Types inputs, const Attrs& attrs);
Inferred infer_compare(Types inputs, const Attrs& attrs);
Inferred infer_where(Types inputs, const Attrs& attrs);
Inferred infer_variadic(Types inputs, const Attrs& attrs);  // any number that broadcast
Inferred infer_arg_reduce(Types inputs, const Attrs& attrs);
Inferred infer_cumsum(Types inputs, const Attrs& attrs);
Inferred infer_top_k(Types inputs, const Attrs& attrs);
Inferred infer_quantize(Types inputs, const Attrs& attrs);
Inferred infer_dequantize(Types inputs, const Attrs& attrs);
Inferred infer_einsum(Types inputs, const Attrs& attrs);
Inferred infer_det(Types inputs, const Attrs& attrs);

// What only moves elements (ops_infer_index.cc).
Inferred infer_expand(Types inputs, const Attrs& attrs);
Inferred infer_tile(Types inputs, const Attrs& attrs);
Inferred infer_slice(Types inputs, const Attrs& attrs);
Inferred infer_gather(Types inputs, const Attrs& attrs);
Inferred infer_gather_elements(Types inputs, const Attrs& attrs);
Inferred infer_gather_nd(Types inputs, const Attrs& attrs);
Inferred infer_scatter_elements(Types inputs, const Attrs& attrs);
Inferred infer_scatter_nd(Types inputs, const Attrs& attrs);
Inferred infer_one_hot(Types inputs, const Attrs& attrs);
Inferred infer_reverse_sequence(Types inputs, const Attrs& attrs);

// Of images (ops_infer_image.cc).
Inferred infer_resize(Types inputs, const Attrs& attrs);
Inferred infer_max_pool_indices(Types inputs, const Attrs& attrs);
Inferred infer_max_unpool(Types inputs, const Attrs& attrs);
inline constexpr int64_t most_samples = 1 << 15;  // of RoiAlign along one side of a bin
Inferred infer_roi_align(Types inputs, const Attrs& attrs);
Inferred infer_grid_sample(Types inputs, const Attrs& attrs);

// Where a Slice begins along each axis, in which steps, and how many elements it takes.
struct SlicedAxis {
  int64_t start = 0, step = 1, count = 0;
};
Result<std::vector<SlicedAxis>> sliced_axes(const Shape& shape, const Attrs& attrs);

// An Einsum's equation, taken apart. Labels are letters; an ellipsis stands for as many axes as are left, each with a
// label of its own below 0 (the last axis -1).
struct EinsumTerms {
  std::vector<std::vector<int>> inputs;  // [operand][axis]
  std::vector<int> output;
};
Result<EinsumTerms> einsum_terms(Types inputs, const std::string& equation);

// -1 is the last axis. Error: outside.
Result<size_t> axis_of(int64_t axis, size_t rank);

// Extents come from files. Beyond this sums and products of them could overflow, and no tensor is as large.
inline constexpr int64_t largest_extent = int64_t{1} << 40;
Inferred one_result(DType dtype, Shape shape);  // error: extents below 0 or beyond that, too many axes
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);
// All of one type that `accepts` takes; `known` is for the message ("f32 and f16").
Status same_type(Types inputs, bool (*accepts)(DType), std::string_view known);
Status reals(Types inputs);                               // error: an operand that is not of floats
Inferred infer_pooled(Types inputs, const Attrs& attrs);  // whatever the type

}  // namespace nlsplit
