// Type inference of each kind of operator; ops.cc puts them into the table.
#pragma once

#include "graph/ops.h"

namespace nlsplit {

using Inferred = Result<std::vector<TensorType>>;

Inferred infer_conv(Types inputs, const Attrs& attrs);
Inferred infer_conv_transpose(Types inputs, const Attrs& attrs);
Inferred infer_gemm(Types inputs, const Attrs& attrs);
Inferred infer_matmul(Types inputs, const Attrs& attrs);
Inferred infer_broadcast(Types inputs, const Attrs& attrs);
Inferred infer_same(Types inputs, const Attrs& attrs);  // all inputs alike, and so the output
Inferred infer_pool(Types inputs, const Attrs& attrs);
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
Inferred infer_lstm(Types inputs, const Attrs& attrs);
Inferred infer_gru(Types inputs, const Attrs& attrs);
Inferred infer_rnn(Types inputs, const Attrs& attrs);

// -1 is the last axis. Error: outside.
Result<size_t> axis_of(int64_t axis, size_t rank);

}  // namespace nlsplit
