// Attention: what its kernels need.
#include "kernels/rows.h"

#include <fmt/format.h>

namespace nlsplit::inline kernels {
namespace {

// Keys and values as panels, for all workers, and what each has of its own.
Bytes scratch_attention(const ComputeDesc& desc, Isa isa, int workers) {
  const Attention a = attention_of(desc);
  const int64_t panels =
      saturating_product(a.batch, a.kv_heads, saturating_sum(a.key_panels(isa), a.value_panels(isa)));
  return floats(saturating_sum(panels, saturating_product(workers, a.worker_floats())));
}

// Of a cache that is not in pages keys and values may be f16.
std::string refuse_kept_types(const ComputeDesc& desc) {
  if (desc.inputs[0].dtype != DType::f32) return fmt::format("{} is not f32", to_string(desc.inputs[0]));
  const bool may_be_f16 = desc.op == Op::CachedAttention;
  for (const size_t i : {1, 2}) {
    const DType type = desc.inputs[i].dtype;
    if (type != DType::f32 && !(may_be_f16 && type == DType::f16))
      return fmt::format("{} is not f32{}", to_string(desc.inputs[i]), may_be_f16 ? " or f16" : "");
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
    .workspace = scratch_attention,
    .exact_axes = image_axes};

}  // namespace nlsplit::inline kernels
