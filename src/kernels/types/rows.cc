// Between element types: what the kernels accept and need.
#include "kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/types/widened.h"

namespace nlsplit::inline kernels {
namespace {

bool is_small_float(DType type) { return type == DType::f32 || is_half(type); }

std::string refuse_cast(const ComputeDesc& desc) {
  if (!is_small_float(desc.inputs[0].dtype) || !is_small_float(desc.outputs[0].dtype))
    return "it casts between f32, f16 and bf16";
  return desc.epilogue.empty() ? "" : "there are steps after it";
}

std::string refuse_cast_blocks(const ComputeDesc& desc) {
  const DType from = desc.inputs[0].dtype, to = desc.outputs[0].dtype;
  if (!(from == DType::f32 && to == DType::q8_0) && !(from == DType::q8_0 && to == DType::f32))
    return "it casts between f32 and q8_0";
  return desc.epilogue.empty() ? "" : "there are steps after it";
}

std::string refuse_widened(const ComputeDesc& desc) {
  const DType type = desc.outputs[0].dtype;
  if (!is_half(type)) return fmt::format("{} is not a half", to_string(desc.outputs[0]));
  if (std::ranges::any_of(desc.inputs, [&](const TensorType& input) { return input.dtype != type; }))
    return "its operands are not all of one type";
  return kernel_of_widened(desc) ? "" : "no kernel computes it in f32";
}

Bytes scratch_widened(const ComputeDesc& desc, Isa isa, int workers) { return widened_of(desc, isa, workers).size; }

// One that has blocks of that size; row-major is any level's.
Isa level_of_blocks(const ComputeDesc& desc) {
  int block = 0;
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) block = std::max(block, type.block);
  }
  for (const Isa isa : all_levels()) {
    if (block == vector_width(isa)) return isa;
  }
  return Isa::v2;
}

}  // namespace

ComputeDesc widened(const ComputeDesc& desc) {
  ComputeDesc wide = desc;
  wide.kernel = {};
  wide.weights = 0;
  for (TensorType& type : wide.inputs) type.dtype = DType::f32;
  for (TensorType& type : wide.outputs) type.dtype = DType::f32;
  return wide;
}

std::optional<KernelName> kernel_of_widened(const ComputeDesc& desc) {
  const ComputeDesc wide = widened(desc);
  const Isa isa = level_of_blocks(desc);
  std::optional<KernelName> best;
  Standing standing{};
  for (const KernelName name : kernels_of(isa)) {
    if (name == KernelName::widened || refusal({name, isa}, wide)) continue;
    const KernelInfo& row = info_of(name);
    const Standing here = row.standing == nullptr ? Standing::usual : row.standing(wide);
    if (best && here >= standing) continue;
    best = name;
    standing = here;
  }
  return best == KernelName::generated || best == KernelName::reference ? std::nullopt : best;
}

Widened widened_of(const ComputeDesc& desc, Isa isa, int workers) {
  ComputeDesc wide = widened(desc);
  wide.kernel = {kernel_of_widened(desc).value(), isa};
  Widened room;
  int64_t end = 0;
  const auto take = [&](int64_t count) {
    const int64_t at = end;
    end = saturating_sum(end, round_up(count, widest_vector));
    return at;
  };
  for (const TensorType& type : wide.inputs) room.inputs.push_back(take(stored_elements(type)));
  for (const TensorType& type : wide.outputs) room.outputs.push_back(take(stored_elements(type)));
  room.workspace = end;
  room.size = bytes(saturating_sum(floats(end).value(), workspace_of(wide, workers).value()));
  return room;
}

const KernelInfo rows::cast = {.what = "element-wise between f32, f16 and bf16",
                               .ops = computes<Op::Cast>,
                               .layouts = Layouts::one,
                               .refuses = refuse_cast,
                               .any_type = true,
                               .exact_axes = exact::all};

const KernelInfo rows::cast_blocks = {.what = "between f32 and blocks of q8_0",
                                      .ops = computes<Op::Cast>,
                                      .refuses = refuse_cast_blocks,
                                      .any_type = true,
                                      .scaled = true,
                                      .exact_axes = exact::all};

const KernelInfo rows::widened = {
    .what = "f16 and bf16: operands widened to f32 for the kernel that computes that, the result rounded",
    .layouts = Layouts::own,
    .refuses = refuse_widened,
    .workspace = scratch_widened,
    .halves = true,
    .in_place = over_any};

}  // namespace nlsplit::inline kernels
