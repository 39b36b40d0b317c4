// Types of operators on images that only the reference evaluator computes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

Status one_of(const Attrs& attrs, std::string_view name, std::initializer_list<std::string_view> known) {
  const std::string& value = attr_string(attrs, name);
  if (std::ranges::find(known, value) != known.end()) return ok_status();
  return unsupported(fmt::format("{} \"{}\"", name, value));
}

}  // namespace

Inferred infer_resize(Types inputs, const Attrs& attrs) {
  if (inputs[0].dtype == DType::boolean) return unsupported("operands of type bool; only numbers are supported");
  RETURN_IF_ERROR(one_of(attrs, "mode", {"nearest", "linear", "cubic"}));
  RETURN_IF_ERROR(one_of(attrs, "nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  RETURN_IF_ERROR(one_of(attrs, "coordinate_transformation_mode",
                         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                          "tf_half_pixel_for_nn", "tf_crop_and_resize"}));
  Shape out = attr_ints(attrs, "sizes");
  const std::vector<double>&scales = attr_floats(attrs, "scales"), &roi = attr_floats(attrs, "roi");
  const size_t rank = inputs[0].shape.size();
  if (out.size() != rank || scales.size() != rank || roi.size() != 2 * rank)
    return invalid_input(fmt::format("sizes, scales or roi are not for {}", to_string(inputs[0])));
  for (size_t axis = 0; axis < rank; ++axis) {
    if (!(scales[axis] > 0) || !std::isfinite(scales[axis]))
      return invalid_input(fmt::format("a scale of {}", scales[axis]));
    if (attr_int(attrs, "antialias") != 0 && scales[axis] < 0x1p-16)
      return invalid_input(fmt::format("antialias at a scale of {}", scales[axis]));
    if (!std::isfinite(roi[axis]) || !std::isfinite(roi[axis + rank])) return invalid_input("a roi without bounds");
    if (out[axis] == 0) out[axis] = inputs[0].shape[axis];
    if (out[axis] > 0 && inputs[0].shape[axis] == 0) return invalid_input("it enlarges an empty axis");
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_max_pool_indices(Types inputs, const Attrs& attrs) {
  const DType type = inputs[0].dtype;
  if (type != DType::i8 && type != DType::u8) RETURN_IF_ERROR(reals(inputs));
  ASSIGN_OR_RETURN(std::vector<TensorType> pooled, infer_pooled(inputs, attrs));
  pooled[0].dtype = DType::i64;
  return pooled;
}

Inferred infer_max_unpool(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs.first(1)));
  const Shape& x = inputs[0].shape;
  if (inputs[1] != TensorType{DType::i64, x}) return invalid_input(fmt::format("indices {}", to_string(inputs[1])));
  Shape out = attr_ints(attrs, "shape");
  if (x.size() < 3 || out.size() != x.size()) return invalid_input("the result has another number of axes");
  for (size_t axis = 0; axis < 2; ++axis) {
    if (out[axis] != 0 && out[axis] != x[axis]) return invalid_input("it changes the batch or the channels");
    out[axis] = x[axis];
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_roi_align(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs.first(2)));
  RETURN_IF_ERROR(one_of(attrs, "mode", {"avg", "max"}));
  RETURN_IF_ERROR(one_of(attrs, "coordinate_transformation_mode", {"half_pixel", "output_half_pixel"}));
  const Shape &x = inputs[0].shape, &rois = inputs[1].shape;
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || inputs[2] != TensorType{DType::i64, {rois[0]}})
    return invalid_input(
        fmt::format("regions {} of {} by {}", to_string(inputs[1]), to_string(inputs[0]), to_string(inputs[2])));
  if (element_count(x) == 0) return invalid_input("it samples an empty image");
  const int64_t height = attr_int(attrs, "output_height"), width = attr_int(attrs, "output_width");
  if (height < 1 || width < 1) return invalid_input("extents that are not positive");
  const int64_t ratio = attr_int(attrs, "sampling_ratio");
  if (ratio < 0 || ratio > most_samples) return invalid_input(fmt::format("a sampling_ratio of {}", ratio));
  return one_result(inputs[0].dtype, {rois[0], x[1], height, width});
}

Inferred infer_grid_sample(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  RETURN_IF_ERROR(one_of(attrs, "mode", {"linear", "nearest", "cubic"}));
  RETURN_IF_ERROR(one_of(attrs, "padding_mode", {"zeros", "border", "reflection"}));
  const Shape &x = inputs[0].shape, &grid = inputs[1].shape;
  if (x.size() != 4 || grid.size() != 4 || grid[0] != x[0] || grid[3] != 2)
    return invalid_input(fmt::format("a grid {} over {}", to_string(inputs[1]), to_string(inputs[0])));
  if (x[2] < 1 || x[3] < 1) return invalid_input("it samples an empty image");
  return one_result(inputs[0].dtype, {x[0], x[1], grid[1], grid[2]});
}

}  // namespace nlsplit
