// Types of operators that only move elements: what they take from where is said by attributes or by indices.
#include <fmt/format.h>

#include <algorithm>

#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

Status check_indices(const TensorType& type) {
  if (type.dtype == DType::i64 || type.dtype == DType::i32) return ok_status();
  return invalid_input(fmt::format("indices {}", to_string(type)));
}

// Whatever the indices are, they point at something: `count` of them along `axis`.
Status check_not_empty(const TensorType& x, size_t axis, int64_t count) {
  if (x.shape[axis] > 0 || count == 0) return ok_status();
  return invalid_input(fmt::format("indices into axis {} of {}", axis, to_string(x)));
}

Status check_reduction(const Attrs& attrs, DType type) {
  const std::string& reduction = attr_string(attrs, "reduction");
  for (const std::string_view known : {"none", "add", "mul", "max", "min"}) {
    if (reduction != known) continue;
    if (known != "none" && type == DType::boolean) return invalid_input(fmt::format("the reduction {} of bool", known));
    return ok_status();
  }
  return invalid_input(fmt::format("a reduction \"{}\"", reduction));
}

}  // namespace

Inferred infer_expand(Types inputs, const Attrs& attrs) {
  const Shape& to = attr_ints(attrs, "shape");
  for (const int64_t extent : to) {
    if (extent < 0) return invalid_input(fmt::format("an extent of {}", extent));
  }
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(inputs[0].shape, to));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_tile(Types inputs, const Attrs& attrs) {
  Shape out = inputs[0].shape;
  const std::vector<int64_t>& repeats = attr_ints(attrs, "repeats");
  if (repeats.size() != out.size())
    return invalid_input(fmt::format("{} repeats of {}", repeats.size(), to_string(inputs[0])));
  for (size_t axis = 0; axis < out.size(); ++axis) {
    if (repeats[axis] < 0 || (out[axis] > 0 && repeats[axis] > largest_extent / out[axis]))
      return invalid_input(fmt::format("{} repeats of an extent of {}", repeats[axis], out[axis]));
    out[axis] *= repeats[axis];
  }
  return one_result(inputs[0].dtype, std::move(out));
}

// ONNX clamps starts and ends to the extent; backwards an end in front of everything is -1.
Result<std::vector<SlicedAxis>> sliced_axes(const Shape& shape, const Attrs& attrs) {
  const auto &axes = attr_ints(attrs, "axes"), &starts = attr_ints(attrs, "starts"), &ends = attr_ints(attrs, "ends"),
             &steps = attr_ints(attrs, "steps");
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size())
    return invalid_input("axes, starts, ends and steps are not of one length");
  std::vector<SlicedAxis> out;
  for (const int64_t extent : shape) out.push_back({0, 1, extent});
  std::vector<bool> seen(shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(axes[i], shape.size()));
    if (seen[axis]) return invalid_input(fmt::format("axis {} twice", axis));
    seen[axis] = true;
    if (steps[i] == 0) return invalid_input("a step of 0");
    const int64_t extent = shape[axis];
    const bool forward = steps[i] > 0;
    // Clamped first: the sums below cannot overflow then.
    const int64_t step = std::clamp(steps[i], -largest_extent, largest_extent);
    const auto place = [&](int64_t at, int64_t low, int64_t high) {
      at = std::clamp(at, -2 * largest_extent, 2 * largest_extent);
      return std::clamp(at < 0 ? at + extent : at, low, high);
    };
    const int64_t start = forward ? place(starts[i], 0, extent) : place(starts[i], -1, extent - 1);
    const int64_t end = forward ? place(ends[i], 0, extent) : place(ends[i], -1, extent - 1);
    const int64_t span = forward ? end - start : start - end, stride = forward ? step : -step;
    out[axis] = {start, step, span <= 0 ? 0 : (span + stride - 1) / stride};
  }
  return out;
}

Inferred infer_slice(Types inputs, const Attrs& attrs) {
  ASSIGN_OR_RETURN(const std::vector<SlicedAxis> axes, sliced_axes(inputs[0].shape, attrs));
  Shape out;
  for (const SlicedAxis& axis : axes) out.push_back(axis.count);
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_gather(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  Shape out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.end());
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_gather_elements(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  if (x.size() != indices.size()) return invalid_input("the indices have another number of axes");
  for (size_t i = 0; i < x.size(); ++i) {
    if (i != axis && indices[i] > x[i])
      return invalid_input(fmt::format("indices {} of {}", to_string(inputs[1]), to_string(inputs[0])));
  }
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, indices);
}

Inferred infer_gather_nd(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  const int64_t given = attr_int(attrs, "batch_dims");
  if (indices.empty() || given < 0 || given >= static_cast<int64_t>(std::min(x.size(), indices.size())))
    return invalid_input(fmt::format("{} batch axes of indices {}", given, to_string(inputs[1])));
  const auto batch = static_cast<size_t>(given);
  if (!std::equal(x.begin(), x.begin() + given, indices.begin())) return invalid_input("the batch axes differ");
  if (indices.back() < 1 || batch + static_cast<size_t>(indices.back()) > x.size())
    return invalid_input(fmt::format("indices {} into {}", to_string(inputs[1]), to_string(inputs[0])));
  Shape out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), x.begin() + given + indices.back(), x.end());
  for (size_t k = 0; k < static_cast<size_t>(indices.back()); ++k)
    RETURN_IF_ERROR(check_not_empty(inputs[0], batch + k, element_count(out)));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_scatter_elements(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_indices(inputs[1]));
  RETURN_IF_ERROR(check_reduction(attrs, inputs[0].dtype));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  if (inputs[2] != TensorType{inputs[0].dtype, indices} || indices.size() != x.size())
    return invalid_input(fmt::format("updates {} at indices {}", to_string(inputs[2]), to_string(inputs[1])));
  for (size_t i = 0; i < x.size(); ++i) {
    if (i != axis && indices[i] > x[i])
      return invalid_input(fmt::format("indices {} of {}", to_string(inputs[1]), to_string(inputs[0])));
  }
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, x);
}

Inferred infer_scatter_nd(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_indices(inputs[1]));
  RETURN_IF_ERROR(check_reduction(attrs, inputs[0].dtype));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  if (indices.empty() || indices.back() < 0 || indices.back() > static_cast<int64_t>(x.size()))
    return invalid_input(fmt::format("indices {} into {}", to_string(inputs[1]), to_string(inputs[0])));
  Shape updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), x.begin() + indices.back(), x.end());
  if (inputs[2] != TensorType{inputs[0].dtype, updates})
    return invalid_input(fmt::format("updates {} at indices {}", to_string(inputs[2]), to_string(inputs[1])));
  for (size_t k = 0; k < static_cast<size_t>(indices.back()); ++k)
    RETURN_IF_ERROR(check_not_empty(inputs[0], k, element_count(updates)));
  return one_result(inputs[0].dtype, x);
}

Inferred infer_one_hot(Types inputs, const Attrs& attrs) {
  if (inputs[0].dtype == DType::boolean || inputs[1].shape != Shape{2})
    return invalid_input(fmt::format("indices {} and values {}", to_string(inputs[0]), to_string(inputs[1])));
  Shape out = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), out.size() + 1));
  const int64_t depth = attr_int(attrs, "depth");
  if (depth < 1) return invalid_input(fmt::format("a depth of {}", depth));
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  return one_result(inputs[1].dtype, std::move(out));
}

Inferred infer_reverse_sequence(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t batch, axis_of(attr_int(attrs, "batch_axis"), x.size()));
  ASSIGN_OR_RETURN(const size_t time, axis_of(attr_int(attrs, "time_axis"), x.size()));
  if (batch == time) return invalid_input("one axis for samples and steps");
  if (inputs[1].shape != Shape{x[batch]}) return invalid_input(fmt::format("{} lengths", to_string(inputs[1])));
  return one_result(inputs[0].dtype, x);
}

}  // namespace nlsplit
