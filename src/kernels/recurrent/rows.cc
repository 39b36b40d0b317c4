// LSTM, GRU and RNN: what their kernels accept and need.
#include "kernels/rows.h"

namespace nlsplit::inline kernels {
namespace {

std::string refuse_recurrent_packed(const ComputeDesc& desc) {
  return desc.is_weight(1) && desc.is_weight(2) ? "" : "it packs both weights at load, and these are not constant";
}

Bytes scratch_recurrent_packed(const ComputeDesc& desc, Isa, int) {
  return floats(recurrent_of(desc).scratch_floats());
}

// And one direction's weights.
Bytes scratch_recurrent(const ComputeDesc& desc, Isa isa, int) {
  const Recurrent r = recurrent_of(desc);
  return floats(saturating_sum(r.scratch_floats(), r.input_panels(isa), r.state_panels(isa)));
}

Bytes packed_recurrent(const ComputeDesc& desc, size_t i, Isa isa) {
  const Recurrent r = recurrent_of(desc);
  return i == 1   ? floats(saturating_product(r.directions, r.input_panels(isa)))
         : i == 2 ? floats(saturating_product(r.directions, r.state_panels(isa)))
                  : bytes(0);
}

}  // namespace

const KernelInfo rows::recurrent_packed = {
    .what = "inputs' part of the gates for many steps at once, then step by step; both weights packed at load",
    .ops = computes<Op::LSTM, Op::GRU, Op::RNN>,
    .refuses = refuse_recurrent_packed,
    .workspace = scratch_recurrent_packed,
    .packed_bytes = packed_recurrent};

const KernelInfo rows::recurrent = {.what = "recurrent_packed with weights that become known only at run time",
                                    .ops = computes<Op::LSTM, Op::GRU, Op::RNN>,
                                    .workspace = scratch_recurrent,
                                    .standing = last_resort};

}  // namespace nlsplit::inline kernels
