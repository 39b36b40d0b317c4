#include "kernels/without_kernel.h"

#include <fmt/format.h>

namespace nlsplit::inline kernels {
namespace {

Status refused(const ComputeDesc& desc, const std::string& why) {
  return invalid_input(fmt::format("{}: {}", signature(desc), why));
}

}  // namespace

Status verify_without_kernel(const ComputeDesc& desc) {
  CHECK(has_no_kernel(desc), "a kernel computes it");
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      RETURN_IF_ERROR(check_type(type));
      if (type.block != 0) return refused(desc, fmt::format("{} is not row-major", to_string(type)));
    }
  }
  if (!desc.epilogue.empty()) return refused(desc, "several steps at once are a kernel's");
  if (is_view(desc.op)) return refused(desc, "a view computes nothing");
  if (desc.inputs.size() < 64 && desc.weights >> desc.inputs.size() != 0)
    return refused(desc, "more weights than inputs");
  auto inferred = infer(desc.op, desc.inputs, desc.attrs);
  if (!inferred.ok()) return refused(desc, inferred.error().message);
  if (*inferred != desc.outputs) return refused(desc, "the operator makes results of other types");
  return ok_status();
}

}  // namespace nlsplit::inline kernels
