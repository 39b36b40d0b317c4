// Attention: what its kernel needs.
#include "kernels/rows.h"

namespace nlsplit::inline kernels {
namespace {

// Keys and values as panels, for all workers, and what each has of its own.
Bytes scratch_attention(const ComputeDesc& desc, Isa isa, int workers) {
  const Attention a = attention_of(desc);
  const int64_t panels =
      saturating_product(a.batch, a.kv_heads, saturating_sum(a.key_panels(isa), a.value_panels(isa)));
  return floats(saturating_sum(panels, saturating_product(workers, a.worker_floats())));
}

}  // namespace

const KernelInfo rows::attention = {
    .what = "scores of some queries and keys at a time, their exponentials relative to the largest so far",
    .ops = computes<Op::Attention>,
    .workspace = scratch_attention,
    .exact_axes = image_axes};

}  // namespace nlsplit::inline kernels
