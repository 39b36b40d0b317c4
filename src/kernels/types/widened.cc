// float16 and bfloat16: computed in float32 by another kernel, and Casts between the three.
#include "kernels/types/widened.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "graph/half.h"
#include "kernels/module/bf16_pairs.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

// f(begin, end) for pieces of [0, count) that are worth handing out.
template <class F>
void in_pieces(const KernelCall& call, int64_t count, const F& f) {
  constexpr int64_t piece = 16384;
  parallel_for(call, (count + piece - 1) / piece, [&](int64_t i) { f(i * piece, std::min(count, (i + 1) * piece)); });
}

void widen(const KernelCall& call, DType type, const void* from, float* to, int64_t count) {
  const auto* halves = static_cast<const uint16_t*>(from);
  in_pieces(call, count, [&](int64_t begin, int64_t end) {
    if (type == DType::f16) {
      for (int64_t i = begin; i < end; ++i) to[i] = f16_value(halves[i]);
    } else {
      int64_t i = begin;
      for (; i + width <= end; i += width) store(to + i, load_bf16(halves + i));
      for (; i < end; ++i) to[i] = bf16_value(halves[i]);
    }
  });
}

void round(const KernelCall& call, DType type, const float* from, void* to, int64_t count) {
  auto* halves = static_cast<uint16_t*>(to);
  in_pieces(call, count, [&](int64_t begin, int64_t end) {
    if (type == DType::f16) {
      for (int64_t i = begin; i < end; ++i) halves[i] = f16_bits(from[i]);
    } else {
      round_to_bf16(from + begin, end - begin, halves + begin);
    }
  });
}

void run_widened(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Isa isa = desc.kernel.level.isa;
  ComputeDesc wide = widened(desc);
  wide.kernel = {kernel_of_widened(desc).value(), isa};
  const Widened room = widened_of(desc, isa, call.crew.workers);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    float* at = workspace(call) + room.inputs[i];
    widen(call, desc.inputs[i].dtype, call.inputs[i], at, stored_elements(desc.inputs[i]));
    inputs.push_back(at);
  }
  for (const int64_t at : room.outputs) outputs.push_back(workspace(call) + at);
  code_of(wide.kernel.name).run({&wide, inputs.data(), outputs.data(), workspace(call) + room.workspace, call.crew});
  for (size_t i = 0; i < desc.outputs.size(); ++i) {
    round(call, desc.outputs[i].dtype, workspace(call) + room.outputs[i], call.outputs[i],
          stored_elements(desc.outputs[i]));
  }
}

// From one half to the other by way of float32, which has both: rounded once.
void run_cast(const KernelCall& call) {
  const TensorType &from = call.desc->inputs[0], &to = call.desc->outputs[0];
  const int64_t count = stored_elements(to);
  if (from.dtype == to.dtype) {
    if (count > 0) std::memmove(call.outputs[0], call.inputs[0], static_cast<size_t>(size_of(to).value()));
  } else if (to.dtype == DType::f32) {
    widen(call, from.dtype, call.inputs[0], output(call), count);
  } else if (from.dtype == DType::f32) {
    round(call, to.dtype, input(call, 0), call.outputs[0], count);
  } else {
    in_pieces(call, count, [&](int64_t begin, int64_t end) {
      const KernelCall alone = {call.desc, nullptr, nullptr, nullptr, {}};
      constexpr int64_t most = 1024;
      float wide[most];
      for (int64_t at = begin; at < end; at += most) {
        const int64_t some = std::min(most, end - at);
        widen(alone, from.dtype, static_cast<const uint16_t*>(call.inputs[0]) + at, wide, some);
        round(alone, to.dtype, wide, static_cast<uint16_t*>(call.outputs[0]) + at, some);
      }
    });
  }
}

}  // namespace

const KernelCode code::widened = {run_widened};
const KernelCode code::cast = {run_cast};

}  // namespace nlsplit::inline kernels
