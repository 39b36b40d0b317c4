// Attention: what its kernels need.
#include "kernels/rows.h"

#include <fmt/format.h>

#include "kernels/attention/attention_bf16.h"

namespace nlsplit::inline kernels {
namespace {

// Keys and values as panels, for all workers, and what each has of its own.
Bytes scratch_attention(const ComputeDesc& desc, Isa isa, int workers) {
  const Attention a = attention_of(desc);
  if (desc.outputs[0].dtype == DType::bf16) {
    const PairAttention p{a, isa};
    return floats(saturating_sum(p.panel_floats(), saturating_product(workers, p.worker_floats())));
  }
  const int64_t panels =
      saturating_product(a.batch, a.kv_heads, saturating_sum(a.key_panels(isa), a.value_panels(isa)));
  return floats(saturating_sum(panels, saturating_product(workers, a.worker_floats())));
}

// Halves are multiplied in pairs.
std::string refuse_attention(const ComputeDesc& desc) {
  const TensorType& type = desc.outputs[0];
  if (!is_half(type.dtype)) return {};
  if (type.dtype != DType::bf16) return fmt::format("{} is not f32 or bf16", to_string(type));
  if (desc.inputs[0].shape.back() % 2 != 0) return fmt::format("{} has an odd width", to_string(desc.inputs[0]));
  return desc.inputs.size() == 3 ? refuse_other_steps(desc) : "its masks and steps are of f32";
}

// Keys and values may be f16.
std::string refuse_kept_types(const ComputeDesc& desc) {
  if (desc.inputs[0].dtype != DType::f32) return fmt::format("{} is not f32", to_string(desc.inputs[0]));
  for (const size_t i : {1, 2}) {
    const DType type = desc.inputs[i].dtype;
    if (type != DType::f32 && type != DType::f16) return fmt::format("{} is not f32 or f16", to_string(desc.inputs[i]));
  }
  return {};
}

}  // namespace

const KernelInfo rows::rotary = {.what = "two halves of a row, turned by the row of the tables that its position has",
                                 .ops = computes<Op::RotaryEmbedding>,
                                 .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::cached_attention = {
    .what = "few queries at a time, so that each has its bits in any chunk; keys and values read where they lie",
    .ops = computes<Op::CachedAttention, Op::PagedAttention>,
    .refuses = refuse_kept_types,
    .any_type = true,
    .exact_axes = image_axes};

const KernelInfo rows::attention = {
    .what = "scores of some queries and keys at a time, their exponentials relative to the largest so far",
    .ops = computes<Op::Attention>,
    .refuses = refuse_attention,
    .workspace = scratch_attention,
    .halves = true,
    .exact_axes = image_axes};

}  // namespace nlsplit::inline kernels
