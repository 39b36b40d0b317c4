// What the code of kernels shares: typed access to a call, and what the families define. table.cc puts it in one table.
#pragma once

#include <algorithm>
#include <atomic>

#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

inline const float* input(const KernelCall& call, size_t i) { return static_cast<const float*>(call.inputs[i]); }
inline float* output(const KernelCall& call) { return static_cast<float*>(call.outputs[0]); }
// Element `at` of an integer operand.
inline int64_t whole_at(const KernelCall& call, size_t i, int64_t at) {
  return call.desc->inputs[i].dtype == DType::i32 ? static_cast<const int32_t*>(call.inputs[i])[at]
                                                  : static_cast<const int64_t*>(call.inputs[i])[at];
}
// The nearest of 0 … largest.
inline int64_t whole_at(const KernelCall& call, size_t i, int64_t at, int64_t largest) {
  return std::clamp<int64_t>(whole_at(call, i, at), 0, largest);
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

namespace code {  // defined once each, by families; a row without code does not link
#define NLS_KERNEL(name) extern const KernelCode name;
#include "kernels/kernels.def"
}  // namespace code
const KernelCode& code_of(KernelName kernel);  // of a CPU's

void use_dot_product(bool use);  // kernel_module.h
void use_pair_instruction(bool use);

}  // namespace nlsplit::inline kernels
