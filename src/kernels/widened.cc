#include "kernels/widened.h"

#include <optional>

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

ComputeDesc widened(const ComputeDesc& desc) {
  ComputeDesc wide = desc;
  wide.kernel.clear();
  wide.weights = 0;
  for (TensorType& type : wide.inputs) type.dtype = DType::f32;
  for (TensorType& type : wide.outputs) type.dtype = DType::f32;
  return wide;
}

const KernelInfo* kernel_of_widened(const ComputeDesc& desc) {
  const ComputeDesc wide = widened(desc);
  const KernelInfo* best = nullptr;
  Standing standing{};
  for (const KernelInfo& kernel : all_kernels()) {
    if (kernel.name == widened_kernel || !refusal(kernel, wide, Isa::v2).empty()) continue;  // row-major is any level's
    const Standing here = kernel.standing == nullptr ? Standing::usual : kernel.standing(wide);
    if (best != nullptr && here >= standing) continue;
    best = &kernel;
    standing = here;
  }
  return best == nullptr || best->name == "reference" ? nullptr : best;
}

Widened widened_of(const ComputeDesc& desc, Isa isa, int workers) {
  const ComputeDesc wide = widened(desc);
  Widened room;
  int64_t end = 0;
  const auto take = [&](int64_t floats) {
    const int64_t at = end;
    end = saturating_sum(end, round_up(floats, widest_vector));
    return at;
  };
  for (const TensorType& type : wide.inputs) room.inputs.push_back(take(element_count(type.shape)));
  for (const TensorType& type : wide.outputs) room.outputs.push_back(take(element_count(type.shape)));
  room.workspace = end;
  room.size = bytes(saturating_sum(saturating_product(end, size_of(DType::f32)),
                                   workspace_of(*kernel_of_widened(desc), wide, isa, workers).value()));
  return room;
}

}  // namespace nlsplit::inline kernels
