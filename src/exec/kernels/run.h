// What the files of kernels share: typed access to a call, and the entries they offer. table.cc puts them in one table.
#pragma once

#include "exec/kernels/kernel.h"

namespace nlsplit {

inline const float* input(const KernelCall& call, size_t i) { return static_cast<const float*>(call.inputs[i]); }
inline float* output(const KernelCall& call) { return static_cast<float*>(call.outputs[0]); }
inline float* workspace(const KernelCall& call) { return static_cast<float*>(call.workspace); }

extern const KernelEntry gemm_packed, gemm_plain, matmul_packed, matmul_plain;
extern const KernelEntry conv_1x1, conv_direct, conv_plain, conv_depthwise;
extern const KernelEntry max_pool, average_pool, global_average_pool;
extern const KernelEntry binary, sum, unary;
extern const KernelEntry batch_norm, lrn, softmax, reduce_mean;
extern const KernelEntry concat, transpose, pad;

}  // namespace nlsplit
