// Sums of gradients and updates by optimizers: what their kernel accepts.
#include "kernels/rows.h"

#include <fmt/format.h>

namespace nlsplit::inline kernels {
namespace {

std::string refuse_update(const ComputeDesc& desc) {
  return desc.inputs[0].dtype == DType::f32 ? "" : fmt::format("{} is not f32", to_string(desc.inputs[0]));
}

}  // namespace

const KernelInfo rows::update = {.what = "of a sum by a part, of a weight by an optimizer; element by element, where they are",
                                 .ops = computes<Op::Accumulate, Op::SgdUpdate, Op::MomentumUpdate, Op::AdamUpdate>,
                                 .refuses = refuse_update,
                                 .any_type = true,
                                 .in_place = over_any};

}  // namespace nlsplit::inline kernels
