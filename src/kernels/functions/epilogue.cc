#include "kernels/functions/epilogue.h"

#include <limits>

#include "kernels/functions/unary.h"

namespace nlsplit::inline kernels {

UnaryParameters unary_parameters(Op op, const Attrs& attrs) {
  const auto number = [&](std::string_view name) { return static_cast<float>(attr_float(attrs, name)); };
  switch (op) {
    case Op::LeakyRelu:
      return {number("alpha"), 0};
    case Op::HardSigmoid:
      return {number("alpha"), number("beta")};
    case Op::Clip:
      return {number("min"), number("max")};
    case Op::Gelu:
      return {attr_string(attrs, "approximate") == "tanh" ? 1.0f : 0.0f, 0};
    default:
      return {};
  }
}

Epilogue::Epilogue(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  steps_.reserve(desc.epilogue.size());
  size_t operand = desc.own_inputs();
  for (const DescStep& step : desc.epilogue) {
    const UnaryParameters p = unary_parameters(step.op, step.attrs);
    const bool binary = has(step.op, traits::is_step_with_operand);
    steps_.push_back({step.op, binary ? static_cast<const float*>(call.inputs[operand++]) : nullptr, p.a, p.b});
  }
}

EpilogueHead Epilogue::take_head() {
  EpilogueHead head;
  if (next_ < steps_.size() && steps_[next_].op == Op::Add) head.operand = steps_[next_++].operand;
  if (next_ < steps_.size() && (steps_[next_].op == Op::Relu || steps_[next_].op == Op::Clip)) {
    const Step& step = steps_[next_++];
    head.clamps = true;
    head.low = step.op == Op::Relu ? 0.0f : step.a;
    head.high = step.op == Op::Relu ? std::numeric_limits<float>::infinity() : step.b;
  }
  return head;
}

void Epilogue::apply(float* output, int64_t begin, int64_t count) const {
  float* to = output + begin;
  for (size_t i = next_; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (step.op == Op::Add) {
      map_row(to, count, add, to, step.operand + begin);
    } else if (step.op == Op::Mul) {
      map_row(to, count, multiply, to, step.operand + begin);
    } else {
      with_unary(step.op, step.a, step.b, [&](auto f) { map_row(to, count, f, to); });
    }
  }
}

}  // namespace nlsplit::inline kernels
