#include "kernels/functions/bf16_epilogue.h"

#include <algorithm>
#include <type_traits>

namespace nlsplit::inline kernels {
namespace {

// values = f(values, operand) for the elements of a run.
template <class F>
void combine(float* values, const uint16_t* operand, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + width <= count; i += width) store(values + i, f(load(values + i), load_bf16(operand + i)));
  if (i < count) store(values + i, f(load(values + i), load_bf16_part(operand + i, count - i)));
}

// Calls use(std::true_type) or use(std::false_type).
template <class Use>
void with_flag(bool flag, const Use& use) {
  flag ? use(std::true_type{}) : use(std::false_type{});
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
  first_ = steps_.size();
  has_function_ = first_ > 0 && steps_[first_ - 1].operand == nullptr;
  if (has_function_) --first_;
  if (first_ > 0 && steps_[first_ - 1].op == Op::Add) added_ = steps_[--first_].operand;
}

std::optional<Bf16Head> Bf16Epilogue::as_head() const {
  Bf16Head head{.added = added_};
  if (first_ > 0) return std::nullopt;
  if (!has_function_) return head;
  const Step& last = steps_.back();
  if (last.op != Op::Relu && last.op != Op::Clip) return std::nullopt;
  head.low = last.op == Op::Relu ? 0.0f : last.a;
  if (last.op == Op::Clip) head.high = last.b;
  return head;
}

void Bf16Epilogue::apply_first_steps(const Bf16Tile& tile) const {
  for (int64_t run = 0; tile.bias != nullptr && run < tile.runs; ++run) {
    float* values = tile.values + run * tile.floats;
    map_row(values, tile.floats, add, values, tile.bias);
  }
  for (size_t i = 0; i < first_; ++i) {
    const Step& step = steps_[i];
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
}

template <class F>
void Bf16Epilogue::store_through(const Bf16Tile& tile, const float* bias, const F& f) const {
  with_rounding([&](auto rounds) {
    with_flag(bias != nullptr, [&](auto has_bias) {
      with_flag(added_ != nullptr, [&](auto has_operand) {
        for (int64_t run = 0; run < tile.runs; ++run) {
          const float* values = tile.values + run * tile.floats;
          const int64_t to = tile.offset + run * tile.stride;
          const uint16_t* operand = has_operand ? added_ + to : nullptr;
          const auto value = [&](int64_t i, int64_t count) {
            Packet x = load(values + i);
            if constexpr (decltype(has_bias)::value) x = add(x, load(bias + i));
            if constexpr (decltype(has_operand)::value)
              x = add(x, count >= width ? load_bf16(operand + i) : load_bf16_part(operand + i, count));
            return f(x);
          };
          int64_t i = 0;
          for (; i + 2 * width <= tile.count; i += 2 * width)
            store_two_bf16<decltype(rounds)>(out_ + to + i, value(i, width), value(i + width, width));
          for (; i < tile.count; i += width) store_bf16(out_ + to + i, value(i, tile.count - i), tile.count - i);
        }
      });
    });
  });
}

void Bf16Epilogue::fetch_ahead(const Bf16Tile& tile) const {
  constexpr int64_t line = 2 * line_floats;
  for (int64_t run = 0; run < tile.runs; ++run) {
    const int64_t begin = tile.offset + run * tile.stride;
    for (int64_t i = begin; i < begin + tile.count; i += line) {
      __builtin_prefetch(out_ + i, 1, 2);
      if (added_ != nullptr) __builtin_prefetch(added_ + i, 0, 2);
    }
  }
}

void Bf16Epilogue::apply(const Bf16Tile& tile) const {
  const float* bias = tile.bias;
  if (first_ > 0) {
    apply_first_steps(tile);
    bias = nullptr;
  }
  if (!has_function_) return store_through(tile, bias, [](const Packet& x) { return x; });
  const Step& last = steps_.back();
  with_unary(last.op, last.a, last.b, [&](auto f) { store_through(tile, bias, f); });
}

}  // namespace nlsplit::inline kernels
