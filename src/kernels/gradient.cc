#include "kernels/gradient.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit {
namespace {

GradientQuery query_of(const ComputeDesc& desc) { return {desc.inputs, desc.outputs, desc.attrs, desc.gradient_by}; }

bool has(uint64_t mask, size_t input) { return input < 64 && (mask >> input & 1) != 0; }

}  // namespace

ComputeDesc gradient_desc(ComputeDesc forward, uint64_t by) {
  forward.kernel = gradient_kernel;
  forward.gradient_by = by;
  forward.weights = 0;  // nothing is packed for a gradient
  return forward;
}

Gradient gradient_of(const ComputeDesc& desc) { return gradient_of(desc.op, query_of(desc)).value(); }

GradientOperands gradient_operands(const ComputeDesc& desc) {
  const Gradient gradient = gradient_of(desc);
  GradientOperands operands;
  operands.reads = desc.outputs;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (has(gradient.keeps_inputs, i)) operands.reads.push_back(desc.inputs[i]);
    if (has(desc.gradient_by & ~gradient.passes, i)) operands.writes.push_back(desc.inputs[i]);
  }
  if (gradient.keeps_output) operands.reads.push_back(desc.outputs[0]);
  return operands;
}

Status verify_gradient(const ComputeDesc& desc) {
  const auto refused = [&](const std::string& why) {
    return invalid_input(fmt::format("{}: {}", signature(desc), why));
  };
  if (desc.kernel != gradient_kernel) return refused("a gradient has no kernel of its own");
  if (!desc.epilogue.empty()) return refused("there is no gradient of several steps at once");
  if (desc.outputs.empty()) return refused("it has no result");
  if (desc.inputs.size() < 64 && desc.gradient_by >> desc.inputs.size() != 0)
    return refused("it differentiates by more inputs than there are");
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (size_t i = 0; i < types->size(); ++i) {
      const TensorType& type = (*types)[i];
      RETURN_IF_ERROR(check_type(type));
      const bool index = types == &desc.inputs && is_whole(type.dtype) && !has(desc.gradient_by, i);
      if (type.dtype != DType::f32 && !index) return refused(fmt::format("{} is not f32", to_string(type)));
      if (type.block != 0) return refused(fmt::format("{} is not row-major", to_string(type)));
    }
  }
  auto inferred = info(desc.op).infer(desc.inputs, desc.attrs);
  if (!inferred.ok()) return refused(inferred.error().message);
  if (*inferred != desc.outputs) return refused("the operator makes results of other types");
  const auto gradient = gradient_of(desc.op, query_of(desc));
  if (!gradient.ok()) return refused(gradient.error().message);
  if ((desc.gradient_by & ~gradient->passes) == 0) return refused("there is nothing to compute");
  return ok_status();
}

ComputeDesc update_desc(Optimizer optimizer, const TensorType& weight) {
  ComputeDesc desc;
  desc.kernel = name_of(optimizer);
  desc.op = Op::Identity;
  const auto states = static_cast<size_t>(state_tensors(optimizer));
  desc.inputs.assign(2 + states, weight);
  desc.outputs.assign(1 + states, weight);
  return desc;
}

std::optional<Optimizer> update_of(const ComputeDesc& desc) {
  return desc.op == Op::Identity ? find_optimizer(desc.kernel) : std::nullopt;
}

Status verify_update(const ComputeDesc& desc) {
  const std::optional<Optimizer> optimizer = update_of(desc);
  CHECK(optimizer.has_value(), "not an update");
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) RETURN_IF_ERROR(check_type(type));
  }
  if (desc.outputs.empty() || desc != update_desc(*optimizer, desc.outputs[0])) {
    return invalid_input(
        fmt::format("{}: {} reads a weight, its gradient and {} of the weight's type, and writes all but the gradient",
                    signature(desc), name_of(*optimizer), state_tensors(*optimizer)));
  }
  if (desc.outputs[0].dtype != DType::f32 || desc.outputs[0].block != 0)
    return invalid_input(fmt::format("{}: it works on row-major f32", signature(desc)));
  return ok_status();
}

}  // namespace nlsplit
