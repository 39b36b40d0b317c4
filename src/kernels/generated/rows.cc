// Generated code: what it accepts.
#include "kernels/rows.h"

#include "kernels/generated/lower.h"
#include "kernels/reference/needed.h"

namespace nlsplit::inline kernels {
namespace {

std::string refuse_generated(const ComputeDesc& desc) {
  if (!only_by_reference(desc)) return "other kernels compute it";
  return refuse_lowering(desc);
}

}  // namespace

// An element's operations and their order are in its loops, whatever is beside it: pieces are exact along every axis.
const KernelInfo rows::generated = {.what = "loops of its own, compiled when it is loaded",
                                    .refuses = refuse_generated,
                                    .any_type = true,
                                    .exact_axes = exact::all};

}  // namespace nlsplit::inline kernels
