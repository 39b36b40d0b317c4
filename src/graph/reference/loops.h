// The loops behind evaluate_op, one function an op or family; internal to this folder.
// Each fills out.values, which has its final size; inputs are as in evaluate_op.
#pragma once

#include <functional>

#include "graph/reference/evaluate.h"

namespace nlsplit::inline graph::reference {

using Inputs = std::vector<const Tensor*>;

void conv(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void conv_transpose(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void max_pool(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void average_pool(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void global_average_pool(const Inputs& inputs, Tensor& out);
void batch_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void layer_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void instance_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void lrn(const Attrs& attrs, const Inputs& inputs, Tensor& out);

void gemm(const Attrs& attrs, const Inputs& inputs, Tensor& out);
void matmul(const Inputs& inputs, Tensor& out);

// Elements between neighbours along each axis of a row-major tensor.
std::vector<int64_t> strides_of(const Shape& shape);
// The same seen from `out`'s axes: 0 where `shape` is broadcast. `shape` must broadcast to `out`.
std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& out);
// Calls visit(index) for every index of `shape`, in row-major order; once, with an empty index, for a scalar.
void for_each_index(const Shape& shape, const std::function<void(const Shape& index)>& visit);
int64_t offset_of(const Shape& index, const std::vector<int64_t>& strides);

// work(0) … work(count - 1) on as many threads as the machine has; the calls must not write what others read.
void parallel_for(int64_t count, const std::function<void(int64_t)>& work);
bool set_one_thread(bool value);  // of this thread alone: no others; what it was

}  // namespace nlsplit::inline graph::reference
