// What each kind of operator does to the batch axis (OpInfo::keeps_batch); ops.cc puts it into the table.
#pragma once

#include "graph/ops.h"

namespace nlsplit {

bool keeps_first(Types inputs, uint64_t batched, const Attrs& attrs);  // input 0 has samples, the others are parameters
bool keeps_none(Types inputs, uint64_t batched, const Attrs& attrs);   // it mixes samples, or nobody has looked
bool keeps_gemm(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_matmul(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_broadcast(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_layer_norm(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_axis(Types inputs, uint64_t batched, const Attrs& attrs);   // works along one axis, which must not be 0
bool keeps_all(Types inputs, uint64_t batched, const Attrs& attrs);    // every input has samples; axis as above
bool keeps_pairs(Types inputs, uint64_t batched, const Attrs& attrs);  // every input has samples
bool keeps_concat(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_reshape(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_flatten(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_transpose(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_reduce(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_pad(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_attention(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_recurrent(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_expand(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_tile(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_slice(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_gather(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_gather_nd(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_one_hot(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_quantize(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_resize(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_einsum(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_det(Types inputs, uint64_t batched, const Attrs& attrs);

}  // namespace nlsplit
