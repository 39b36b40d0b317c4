// Samples of images between their pixels.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

// Of the whole operand, which keeps its extents.
size_t axes_of_first(Types inputs) { return inputs.empty() ? 0 : inputs[0].shape.size(); }
UsualValue whole_operand(Types inputs) {
  const size_t rank = axes_of_first(inputs);
  std::vector<double> roi(2 * rank, 0);
  std::fill_n(roi.begin() + static_cast<std::ptrdiff_t>(rank), rank, 1);
  return roi;
}
UsualValue scales_of_one(Types inputs) { return std::vector<double>(axes_of_first(inputs), 1); }
UsualValue own_extents(Types inputs) { return Shape(axes_of_first(inputs), 0); }

constexpr AttrSpec resize_attrs[] = {integer("antialias", 0),
                                     text("coordinate_transformation_mode", "half_pixel"),
                                     real("cubic_coeff_a", -0.75),
                                     integer("exclude_outside", 0),
                                     real("extrapolation_value", 0.0),
                                     text("mode", "nearest"),
                                     text("nearest_mode", "round_prefer_floor"),
                                     reals("roi", whole_operand),
                                     reals("scales", scales_of_one),
                                     integers("sizes", own_extents)};
constexpr AttrSpec roi_align_attrs[] = {text("coordinate_transformation_mode", "half_pixel"),
                                        text("mode", "avg"),
                                        integer("output_height", 1),
                                        integer("output_width", 1),
                                        integer("sampling_ratio", 0),
                                        real("spatial_scale", 1.0)};
constexpr AttrSpec grid_sample_attrs[] = {integer("align_corners", 0), text("mode", "linear"),
                                          text("padding_mode", "zeros")};

// ---- types

Status one_of(const Attrs& attrs, std::string_view name, std::initializer_list<std::string_view> known) {
  const std::string& value = attr_string(attrs, name);
  if (std::ranges::find(known, value) != known.end()) return ok_status();
  return unsupported(fmt::format("{} \"{}\"", name, value));
}

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

// ---- work: a multiplication and an addition are two operations

// Taps of an output element, a multiply-add each: 1, 2 or 4 an axis that changes, more where it is made smaller and
// smoothed.
Flops flops_resize(Types in, Types out, const Attrs& attrs) {
  const std::string& mode = attr_string(attrs, "mode");
  if (mode == "nearest") return flops(0);
  double taps = 1;
  for (size_t axis = 0; axis < out[0].shape.size(); ++axis) {
    const double spread = attr_int(attrs, "antialias") != 0 ? std::min(1.0, attr_floats(attrs, "scales")[axis]) : 1;
    if (in[0].shape[axis] != out[0].shape[axis]) taps *= (mode == "cubic" ? 4 : 2) / spread;
  }
  return flops(2 * taps * count(out[0]));
}

Flops flops_grid_sample(Types, Types out, const Attrs& attrs) {
  const std::string& mode = attr_string(attrs, "mode");
  const double taps = mode == "nearest" ? 0 : mode == "cubic" ? 16 : 4;
  return flops(2 * taps * count(out[0]));
}

// Four taps a sample; as many samples as the average needs (at least one).
Flops flops_roi_align(Types, Types out, const Attrs& attrs) {
  const auto ratio = static_cast<double>(std::max<int64_t>(attr_int(attrs, "sampling_ratio"), 1));
  return flops(8 * ratio * ratio * count(out[0]));
}

// ---- the batch axis

bool keeps_resize(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && !in[0].shape.empty() && attr_floats(attrs, "scales")[0] == 1 &&
         attr_ints(attrs, "sizes")[0] == 0;
}

// ---- pieces (pieces.h)

// An axis that keeps its extent is cut as it is. One that is repeated a whole number of times, by the nearest element,
// is cut between the repetitions: there element x of the result is element x / factor of the input, without rounding
// that could depend on where a piece begins.
bool resize_piece(const PieceQuery& query, NodePiece& piece) {
  const Attrs& attrs = query.node.attrs;
  const int64_t extent = query.inputs[0].shape[query.axis], out = query.out[query.axis];
  const double scale = attr_floats(attrs, "scales")[query.axis];
  const int axis = static_cast<int>(query.axis);
  std::vector<int64_t> sizes = attr_ints(attrs, "sizes");
  const std::string& mode = attr_string(attrs, "mode");
  const std::string& place = attr_string(attrs, "coordinate_transformation_mode");
  const std::string& rounding = attr_string(attrs, "nearest_mode");
  if (place == "tf_crop_and_resize" || extent == 0 || out % extent != 0) return false;
  const int64_t factor = out / extent;
  if (scale != static_cast<double>(factor)) return false;
  if (factor > 1) {
    const bool between = place == "asymmetric" && rounding == "floor";
    const bool centred = place == "half_pixel" && (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
    if (mode != "nearest" || (!between && !centred)) return false;
    if (attr_int(attrs, "antialias") != 0) return false;
  }
  if (query.begin % factor != 0 || query.end % factor != 0) return false;
  piece.inputs[0] = {axis, query.begin / factor, query.end / factor};
  if (sizes[query.axis] != 0) sizes[query.axis] = query.end - query.begin;
  set_attr(piece.attrs, "sizes", std::move(sizes));
  return true;
}

// ---- gradients

void back_resize(Backward& b) {
  Attrs attrs = b.attrs();
  const Shape x = b.shape(b.x(0)), y = b.shape(b.y());
  Shape extents;
  for (size_t axis = 0; axis < x.size(); ++axis) extents.push_back(x[axis] == y[axis] ? 0 : x[axis]);
  set_attr(attrs, "extents", std::move(extents));
  b.give(0, b.add(Op::ResizeGradient, {b.dy()}, std::move(attrs)));
}
void back_roi_align(Backward& b) {
  if (b.wants(1)) return b.fail(unsupported("RoiAlign has no gradient by its regions"));
  b.give(0, b.add(Op::RoiAlignGradient, {b.dy(), b.x(0), b.x(1), b.x(2)}, b.attrs()));
}
void back_grid_sample(Backward& b) {
  const std::vector<ValueId> made = b.add_all(Op::GridSampleGradient, {b.dy(), b.x(0), b.x(1)}, b.attrs(), 2);
  for (size_t i = 0; i < 2; ++i) {
    if (b.wants(i)) b.give(i, made[i]);
  }
}

// The gradients' own rows. What the operator makes of x must be dy.

constexpr AttrSpec resize_gradient_attrs[] = {integer("antialias"),  text("coordinate_transformation_mode"),
                                              real("cubic_coeff_a"), integer("exclude_outside"),
                                              integers("extents"),   real("extrapolation_value"),
                                              text("mode"),          text("nearest_mode"),
                                              AttrSpec{"roi", 'd'},  AttrSpec{"scales", 'd'},
                                              integers("sizes")};
constexpr AttrSpec roi_align_gradient_attrs[] = {text("coordinate_transformation_mode"),
                                                 text("mode"),
                                                 integer("output_height"),
                                                 integer("output_width"),
                                                 integer("sampling_ratio"),
                                                 real("spatial_scale")};
constexpr AttrSpec grid_sample_gradient_attrs[] = {integer("align_corners"), text("mode"), text("padding_mode")};

Inferred infer_resize_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  Shape x = attr_ints(attrs, "extents");
  const Shape& dy = inputs[0].shape;
  if (x.size() != dy.size()) return invalid_input(fmt::format("extents of {} axes", x.size()));
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (x[axis] == 0) x[axis] = dy[axis];
  }
  ASSIGN_OR_RETURN(const std::vector<TensorType> made, one_result(inputs[0].dtype, std::move(x)));
  Attrs forward = attrs;
  std::erase_if(forward, [](const Attr& attr) { return attr.name == "extents"; });
  RETURN_IF_ERROR(check_forward(Op::Resize, made, forward, inputs[0]));
  return made;
}
Inferred infer_roi_align_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs.first(2)));
  RETURN_IF_ERROR(check_forward(Op::RoiAlign, inputs.subspan(1), attrs, inputs[0]));
  return one_result(inputs[1].dtype, inputs[1].shape);
}
Inferred infer_grid_sample_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  RETURN_IF_ERROR(check_forward(Op::GridSample, inputs.subspan(1), attrs, inputs[0]));
  return std::vector<TensorType>{inputs[1], inputs[2]};
}

// As many taps as forward, of which each is a multiply-add here too.
Flops flops_resize_gradient(Types in, Types out, const Attrs& attrs) { return flops_resize(out, in, attrs); }
Flops flops_roi_align_gradient(Types in, Types, const Attrs& attrs) {
  return flops_roi_align(in.subspan(1), in.first(1), attrs);
}
// By x; and by both coordinates of the grid the taps once more with other weights.
Flops flops_grid_sample_gradient(Types in, Types, const Attrs& attrs) {
  return flops(3 * flops_grid_sample(in.subspan(1), in.first(1), attrs).value());
}

bool keeps_resize_gradient(Types, uint64_t batched, const Attrs& attrs) {
  const Shape& extents = attr_ints(attrs, "extents");
  return batched == 1 && !extents.empty() && extents[0] == 0 && attr_floats(attrs, "scales")[0] == 1 &&
         attr_ints(attrs, "sizes")[0] == 0;
}

}  // namespace

// clang-format off
//  operator            inputs  attributes                  types                       work                        batch                  split         gradient          traits
ROW(Resize,             1, 1,   resize_attrs,               infer_resize,               flops_resize,               keeps_resize,          resize_piece, back_resize,      none)
ROW(RoiAlign,           3, 3,   roi_align_attrs,            infer_roi_align,            flops_roi_align,            keeps_none,            no_split,     back_roi_align,   stays_f32)
ROW(GridSample,         2, 2,   grid_sample_attrs,          infer_grid_sample,          flops_grid_sample,          keeps_pairs,           no_split,     back_grid_sample, stays_f32)
ROW(ResizeGradient,     1, 1,   resize_gradient_attrs,      infer_resize_gradient,      flops_resize_gradient,      keeps_resize_gradient, no_split,     of_a_step,        not_in_onnx)
ROW(RoiAlignGradient,   4, 4,   roi_align_gradient_attrs,   infer_roi_align_gradient,   flops_roi_align_gradient,   keeps_none,            no_split,     of_a_step,        not_in_onnx)
ROW(GridSampleGradient, 3, 3,   grid_sample_gradient_attrs, infer_grid_sample_gradient, flops_grid_sample_gradient, keeps_pairs,           no_split,     of_a_step,        not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
