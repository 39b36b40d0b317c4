#include "kernels/functions/bf16_epilogue.h"

#include <algorithm>

namespace nlsplit::inline kernels {
namespace {

// values = f(values, operand) for the elements of a run.
template <class F>
void combine(float* values, const uint16_t* operand, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + width <= count; i += width) store(values + i, f(load(values + i), load_bf16(operand + i)));
  if (i < count) store(values + i, f(load(values + i), load_bf16_part(operand + i, count - i)));
}

}  // namespace

Bf16Epilogue::Bf16Epilogue(const KernelCall& call) : out_(static_cast<uint16_t*>(call.outputs[0])) {
  const ComputeDesc& desc = *call.desc;
  size_t operand = desc.own_inputs();
  for (const DescStep& step : desc.epilogue) {
    const UnaryParameters p = unary_parameters(step.op, step.attrs);
    const bool binary = has(step.op, traits::is_step_with_operand);
    steps_.push_back({step.op, binary ? static_cast<const uint16_t*>(call.inputs[operand++]) : nullptr, p.a, p.b});
  }
}

void Bf16Epilogue::apply(const Bf16Tile& tile) const {
  for (const Step& step : steps_) {
    if (step.operand == nullptr) {
      with_unary(step.op, step.a, step.b,
                 [&](auto f) { map_row(tile.values, tile.runs * tile.floats, f, tile.values); });
      continue;
    }
    for (int64_t run = 0; run < tile.runs; ++run) {
      float* values = tile.values + run * tile.floats;
      const uint16_t* operand = step.operand + tile.offset + run * tile.stride;
      step.op == Op::Add ? combine(values, operand, tile.count, add) : combine(values, operand, tile.count, multiply);
    }
  }
  for (int64_t run = 0; run < tile.runs; ++run) {
    const float* values = tile.values + run * tile.floats;
    uint16_t* to = out_ + tile.offset + run * tile.stride;
    for (int64_t i = 0; i < tile.count; i += width) store_bf16(to + i, load(values + i), tile.count - i);
  }
}

}  // namespace nlsplit::inline kernels
