// What the files of kernels share: typed access to a call, and the entries they offer. table.cc puts them in one table.
#pragma once

#include <algorithm>
#include <atomic>

#include "exec/kernels/kernel.h"

namespace nlsplit::inline exec {

inline const float* input(const KernelCall& call, size_t i) { return static_cast<const float*>(call.inputs[i]); }
inline float* output(const KernelCall& call) { return static_cast<float*>(call.outputs[0]); }
// Element `at` of an integer operand, in 0 … largest: the nearest of these.
inline int64_t whole_at(const KernelCall& call, size_t i, int64_t at, int64_t largest) {
  const int64_t value = call.desc->inputs[i].dtype == DType::i32 ? static_cast<const int32_t*>(call.inputs[i])[at]
                                                                 : static_cast<const int64_t*>(call.inputs[i])[at];
  return std::clamp<int64_t>(value, 0, largest);
}
inline float* workspace(const KernelCall& call) { return static_cast<float*>(call.workspace); }

// f(i, worker) for every i in [0, count), by whichever worker is free; in order where there is one worker only.
template <class F>
void parallel_for_workers(const KernelCall& call, int64_t count, const F& f) {
  if (call.crew.workers <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) f(i, 0);
    return;
  }
  struct Shared {
    const F& f;
    int64_t count;
    alignas(128) std::atomic<int64_t> next{0};  // apart from what is only read
  } shared{f, count};
  call.crew.run(
      call.crew.self,
      [](void* context, int worker) {
        Shared& all = *static_cast<Shared*>(context);
        for (int64_t i; (i = all.next.fetch_add(1, std::memory_order_relaxed)) < all.count;) all.f(i, worker);
      },
      &shared);
}

// The same where no worker needs memory of its own.
template <class F>
void parallel_for(const KernelCall& call, int64_t count, const F& f) {
  parallel_for_workers(call, count, [&](int64_t i, int) { f(i); });
}

extern const KernelEntry gemm_packed, gemm_plain, matmul_packed, matmul_plain;
extern const KernelEntry conv_1x1, conv_direct, conv_plain, conv_depthwise;
extern const KernelEntry conv_blocked, conv_stem, conv_winograd, conv_depthwise_blocked;
extern const KernelEntry conv_transpose_packed, conv_transpose_plain;
extern const KernelEntry max_pool, average_pool, global_average_pool;
extern const KernelEntry max_pool_blocked, average_pool_blocked, global_average_pool_blocked;
extern const KernelEntry binary, sum, unary;
extern const KernelEntry batch_norm, lrn, softmax, reduce_mean;
extern const KernelEntry layer_norm, instance_norm;
extern const KernelEntry batch_norm_blocked, lrn_blocked;
extern const KernelEntry recurrent_packed, recurrent_plain;
extern const KernelEntry concat, concat_blocked, slice, slice_blocked, transpose, pad, gather, reorder;
extern const KernelEntry attention, cached_attention;
extern const KernelEntry cast, scatter_in_place, update, widened_halves;
extern const KernelEntry reference_loops;

}  // namespace nlsplit::inline exec
