// The reference loops: what no other kernel computes.
#include "kernels/rows.h"

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "kernels/reference/needed.h"

namespace nlsplit::inline kernels {
namespace {

// Strides, pads and dilations of a file make the scratch of windows larger than the tensors: of the kernel that takes
// what all others refuse.
bool has_no_room(const ComputeDesc& desc) {
  for (const KernelInfo* row : {&rows::conv, &rows::conv_transpose, &rows::conv_weight_gradient, &rows::max_pool,
                                &rows::average_pool, &rows::max_pool_gradient, &rows::average_pool_gradient}) {
    if (row->ops[0] == desc.op) return row->workspace(desc, Isa::v2, most_cores) > bytes(most_bytes);
  }
  return false;
}

std::string refuse_reference(const ComputeDesc& desc) {
  return only_by_reference(desc) ? "" : "other kernels compute it";
}

}  // namespace

bool only_by_reference(const ComputeDesc& desc) {
  const auto shares_scales = [](const TensorType& type) { return is_scaled(type.dtype); };
  const bool scaled =
      std::ranges::any_of(desc.inputs, shares_scales) || std::ranges::any_of(desc.outputs, shares_scales);
  for (const KernelInfo* row : {&rows::gather, &rows::slice, &rows::cast, &rows::cast_blocks, &rows::widened,
                                &rows::linear, &rows::linear_bf16, &rows::linear_blocks, &rows::gather_blocks,
                                &rows::gather_gradient, &rows::cross_entropy, &rows::update, &rows::sum_of_squares}) {
    if (scaled == row->scaled && takes(*row, desc)) return false;
  }
  if (desc.op == Op::Experts && takes(rows::experts, desc)) return false;
  const auto has_many_axes = [](const TensorType& type) { return type.shape.size() > most_kernel_axes; };
  const bool many_axes =
      std::ranges::any_of(desc.inputs, has_many_axes) || std::ranges::any_of(desc.outputs, has_many_axes);
  const bool needed = !has(desc.op, traits::has_kernels) || has_other_types(desc) || many_axes ||
                      (is_window(desc.op) && (!has_planes(desc) || has_no_room(desc)));
  return needed;
}

// Generated code is taken wherever there is some. A Program that names these loops instead runs, too: so are the two
// compared.
const KernelInfo rows::reference = {.what = "the reference evaluator's loops: any operator, elements of any type; slow",
                                    .refuses = refuse_reference,
                                    .standing = last_resort,
                                    .any_type = true,
                                    .scaled = true};

}  // namespace nlsplit::inline kernels
