// What computes nothing, but puts elements elsewhere: what the kernels accept.
#include "kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/shapes.h"

namespace nlsplit::inline kernels {
namespace {

std::string refuse_concat_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const size_t axis = axis_of(attr_int(desc.attrs, "axis"), desc.outputs[0].shape.size()).value();
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    const TensorType& type = desc.inputs[i];
    if (type.block != desc.outputs[0].block) return "its operands differ in layout";
    if (axis == 1 && i + 1 < desc.own_inputs() && type.shape[1] % type.block != 0)
      return fmt::format("{} does not end with a whole block", to_string(type));
  }
  return {};
}

std::string refuse_slice(const ComputeDesc& desc) {
  if (std::string why = refuse_many_axes(desc); !why.empty()) return why;
  const auto& steps = attr_ints(desc.attrs, "steps");
  if (std::ranges::any_of(steps, [](int64_t step) { return step != 1; })) return "it takes neighbours only";
  return refuse_other_steps(desc);
}

// Lanes past the last channel have no meaning, so where the channels end does not matter.
std::string refuse_slice_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_slice(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const int64_t first = sliced_axes(desc.inputs[0].shape, desc.attrs).value()[1].start;
  return first % desc.inputs[0].block == 0 ? "" : fmt::format("channel {} does not begin a block", first);
}

// Halves move in pairs.
std::string refuse_transpose(const ComputeDesc& desc) {
  if (std::string why = refuse_many_axes(desc); !why.empty()) return why;
  const TensorType& type = desc.outputs[0];
  if (!is_half(type.dtype)) return {};
  const std::span<const int64_t> perm = attr_ints(desc.attrs, "perm");
  if (perm.empty() || perm.back() + 1 != static_cast<int64_t>(perm.size()) || type.shape.back() % 2 != 0)
    return fmt::format("neighbours in {} come apart", to_string(desc.inputs[0]));
  return refuse_other_steps(desc);
}

std::string refuse_gather_blocks(const ComputeDesc& desc) {
  const TensorType& table = desc.inputs[0];
  if (!is_scaled(table.dtype)) return fmt::format("elements of {} share no scale", to_string(table));
  const size_t axis = axis_of(attr_int(desc.attrs, "axis"), table.shape.size()).value();
  return axis + 1 < table.shape.size() ? "" : "it takes rows, not single elements";
}

std::string refuse_gather_gradient(const ComputeDesc& desc) {
  if (desc.outputs[0].dtype != DType::f32) return fmt::format("{} is not f32", to_string(desc.outputs[0]));
  const TensorType& indices = desc.inputs[1];
  return indices.dtype == DType::i32 || indices.dtype == DType::i64
             ? ""
             : fmt::format("{} is not i32 or i64", to_string(indices));
}

std::string refuse_reorder(const ComputeDesc& desc) {
  return (desc.inputs[0].block == 0) != (desc.outputs[0].block == 0) ? "" : "there is nothing to reorder";
}

// A row of candidates: beyond that, keeping them sorted costs more than sorting all once.
std::string refuse_top_k(const ComputeDesc& desc) {
  constexpr int64_t most = 1024;
  const Shape& shape = desc.inputs[0].shape;
  if (!desc.epilogue.empty()) return "there are steps after it";
  if (desc.inputs[0].dtype != DType::f32) return fmt::format("{} is not f32", to_string(desc.inputs[0]));
  if (axis_of(attr_int(desc.attrs, "axis"), shape.size()).value() + 1 != shape.size()) return "not of the last axis";
  if (attr_int(desc.attrs, "largest") == 0) return "it finds the largest";
  const int64_t k = desc.outputs[0].shape.back();
  return k <= most ? "" : fmt::format("{} are more than {}", k, most);
}

}  // namespace

const KernelInfo rows::concat_blocked = {.what = "copies blocks of channels",
                                         .ops = computes<Op::Concat>,
                                         .layouts = Layouts::own,
                                         .refuses = refuse_concat_blocked,
                                         .exact_axes = exact::all};

const KernelInfo rows::concat = {.what = "copies", .ops = computes<Op::Concat>, .exact_axes = exact::all};

const KernelInfo rows::slice_blocked = {.what = "copies runs of blocks of channels",
                                        .ops = computes<Op::Slice>,
                                        .layouts = Layouts::own,
                                        .refuses = refuse_slice_blocked,
                                        .exact_axes = exact::all};

const KernelInfo rows::slice = {.what = "copies runs as long as they come, elements of any type",
                                .ops = computes<Op::Slice>,
                                .refuses = refuse_slice,
                                .any_type = true,
                                .exact_axes = exact::all};

const KernelInfo rows::transpose = {.what = "copies; tiles where the last axis moves",
                                    .ops = computes<Op::Transpose>,
                                    .refuses = refuse_transpose,
                                    .halves = true,
                                    .exact_axes = exact::all};

const KernelInfo rows::pad = {.what = "copies into a filled output",
                              .ops = computes<Op::Pad>,
                              .refuses = refuse_many_axes,
                              .exact_axes = exact::all};

const KernelInfo rows::top_k = {.what = "the largest so far kept sorted, of the last axis, at most 1,024 of them",
                                .ops = computes<Op::TopK>,
                                .refuses = refuse_top_k,
                                .any_type = true};

const KernelInfo rows::gather = {.what = "copies what an index points at, elements of any type",
                                 .ops = computes<Op::Gather>,
                                 .refuses = refuse_other_steps,
                                 .any_type = true,
                                 .exact_axes = exact::all};

const KernelInfo rows::gather_gradient = {.what = "rows added to those that an index points at, in their order",
                                          .ops = computes<Op::GatherGradient>,
                                          .refuses = refuse_gather_gradient,
                                          .any_type = true};

const KernelInfo rows::expand = {.what = "copies rows, or one element again and again",
                                 .ops = computes<Op::Expand>,
                                 .refuses = refuse_many_axes,
                                 .exact_axes = exact::all};

const KernelInfo rows::gather_blocks = {
    .what = "rows of weights that share scales, the ones that are read alone as f32",
    .ops = computes<Op::Gather>,
    .refuses = refuse_gather_blocks,
    .any_type = true,
    .scaled = true,
    .exact_axes = exact::all};

const KernelInfo rows::reorder = {.what = "between row-major and blocks of channels",
                                  .ops = computes<Op::Identity>,
                                  .layouts = Layouts::own,
                                  .refuses = refuse_reorder,
                                  .halves = true};

}  // namespace nlsplit::inline kernels
