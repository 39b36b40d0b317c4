#include "kernels/without_kernel.h"

#include <fmt/format.h>

namespace nlsplit {
namespace {

Status refused(const ComputeDesc& desc, const std::string& why) {
  return invalid_input(fmt::format("{}: {}", signature(desc), why));
}

Status verify_update(const ComputeDesc& desc, Optimizer optimizer) {
  if (desc.outputs.empty() || desc != update_desc(optimizer, desc.outputs[0])) {
    return refused(desc, fmt::format("{} reads a weight, its gradient and {} of the weight's type, and writes all but "
                                     "the gradient",
                                     name_of(optimizer), state_tensors(optimizer)));
  }
  if (desc.outputs[0].dtype != DType::f32) return refused(desc, "it works on f32");
  return ok_status();
}

}  // namespace

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

Status verify_without_kernel(const ComputeDesc& desc) {
  CHECK(has_no_kernel(desc), "a kernel computes it");
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      RETURN_IF_ERROR(check_type(type));
      if (type.block != 0) return refused(desc, fmt::format("{} is not row-major", to_string(type)));
    }
  }
  if (const std::optional<Optimizer> optimizer = update_of(desc)) return verify_update(desc, *optimizer);
  if (!desc.epilogue.empty()) return refused(desc, "several steps at once are a kernel's");
  if (is_view(desc.op)) return refused(desc, "a view computes nothing");
  if (desc.inputs.size() < 64 && desc.weights >> desc.inputs.size() != 0)
    return refused(desc, "more weights than inputs");
  auto inferred = info(desc.op).infer(desc.inputs, desc.attrs);
  if (!inferred.ok()) return refused(desc, inferred.error().message);
  if (*inferred != desc.outputs) return refused(desc, "the operator makes results of other types");
  return ok_status();
}

}  // namespace nlsplit
