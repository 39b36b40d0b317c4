// Resize and Upsample of every opset, further results and kinds of pools, samples between pixels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/elements.h"
#include "graph/onnx/convert_tools.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

// Numbers given as an attribute by older opsets and as input `i` by newer ones; empty if left out.
Result<std::vector<double>> numbers(const ConvertContext& c, const std::string& attr, size_t i) {
  if (const auto found = c.node.attrs.find(attr); found != c.node.attrs.end()) {
    if (const auto* list = std::get_if<std::vector<float>>(&found->second))
      return std::vector<double>(list->begin(), list->end());
  }
  if (!c.given(i)) return std::vector<double>{};
  if (c.inputs[i].constant == nullptr) return unsupported(fmt::format("{} that is not constant", attr));
  return numbers_of(*c.inputs[i].constant, c.weights);
}

// Those of some axes among the values that all others have.
template <class T>
Result<std::vector<T>> spread(const std::vector<T>& some, const std::optional<std::vector<int64_t>>& axes, size_t rank,
                              T otherwise) {
  const size_t count = axes ? axes->size() : rank;
  if (some.size() != count) return invalid_input(fmt::format("{} values for {} axes", some.size(), count));
  if (!axes) return some;
  std::vector<T> all(rank, otherwise);
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of((*axes)[i], rank));
    all[axis] = some[i];
  }
  return all;
}

struct Sizes {
  std::vector<int64_t> sizes;
  std::vector<double> scales;
};

// sizes may ask for the extents' proportion to be kept: then one scale for all axes that are named.
Result<Sizes> from_sizes(const ConvertContext& c, const std::vector<int64_t>& given,
                         const std::optional<std::vector<int64_t>>& axes) {
  const Shape x = c.type(0).shape;
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, spread<int64_t>(given, axes, x.size(), 0));
  const std::string policy = string_attr(c.node, "keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return unsupported(fmt::format("keep_aspect_ratio_policy {}", policy));
  double common = policy == "not_larger" ? std::numeric_limits<double>::infinity() : 0;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (sizes[axis] < 0 || sizes[axis] > largest_extent || (sizes[axis] > 0 && x[axis] == 0))
      return invalid_input(fmt::format("a size of {} of an extent of {}", sizes[axis], x[axis]));
    if (sizes[axis] == 0) continue;
    const double scale = static_cast<double>(sizes[axis]) / static_cast<double>(x[axis]);
    common = policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
  }
  Sizes out{sizes, std::vector<double>(x.size(), 1)};
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (sizes[axis] == 0) continue;
    if (policy != "stretch") {
      const double size = std::floor(static_cast<double>(x[axis]) * common + 0.5);
      if (!(size <= static_cast<double>(largest_extent))) return invalid_input(fmt::format("a size of {}", size));
      out.sizes[axis] = static_cast<int64_t>(size);
    }
    out.scales[axis] = policy == "stretch" ? static_cast<double>(sizes[axis]) / static_cast<double>(x[axis]) : common;
    if (out.sizes[axis] == x[axis] && out.scales[axis] == 1) out.sizes[axis] = 0;  // whatever the batch
  }
  return out;
}

Result<Sizes> from_scales(const ConvertContext& c, const std::vector<double>& given,
                          const std::optional<std::vector<int64_t>>& axes) {
  const Shape x = c.type(0).shape;
  Sizes out;
  ASSIGN_OR_RETURN(out.scales, spread<double>(given, axes, x.size(), 1));
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const double scale = out.scales[axis], extent = std::floor(static_cast<double>(x[axis]) * scale);
    if (!(scale > 0) || !(extent <= static_cast<double>(largest_extent)))
      return invalid_input(fmt::format("a scale of {}", scale));
    out.sizes.push_back(scale == 1 ? 0 : static_cast<int64_t>(extent));
  }
  return out;
}

// Upsample is Resize without a choice: opset 10's nearest one took the place below, too.
Converted resize(const ConvertContext& c, bool upsample) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const size_t rank = c.type(0).shape.size();
  const bool early = upsample || c.opset < 11;
  const auto axes = ints_attr(c.node, "axes");
  ASSIGN_OR_RETURN(const std::vector<double> scales, numbers(c, "scales", early ? 1 : 2));
  std::vector<int64_t> sizes;
  if (!early && c.given(3)) {
    ASSIGN_OR_RETURN(const auto given, integers(c, "sizes", 3));
    sizes = *given;
  }
  if (scales.empty() == sizes.empty()) return invalid_input("either scales or sizes must be given");
  ASSIGN_OR_RETURN(Sizes to, scales.empty() ? from_sizes(c, sizes, axes) : from_scales(c, scales, axes));
  std::vector<double> roi(2 * rank, 0);
  std::fill(roi.begin() + static_cast<std::ptrdiff_t>(rank), roi.end(), 1);
  const std::string how = early ? "asymmetric" : string_attr(c.node, "coordinate_transformation_mode", "half_pixel");
  if (how == "tf_crop_and_resize") {
    ASSIGN_OR_RETURN(const std::vector<double> given, numbers(c, "roi", 1));
    const size_t count = axes ? axes->size() : rank;
    if (given.size() != 2 * count) return invalid_input("roi is not a start and an end for every axis");
    for (size_t i = 0; i < count; ++i) {
      size_t axis = i;
      if (axes) {
        ASSIGN_OR_RETURN(axis, axis_of((*axes)[i], rank));
      }
      roi[axis] = given[i], roi[axis + rank] = given[i + count];
    }
  }
  std::string mode = string_attr(c.node, "mode", "nearest");
  if (mode == "bilinear" || mode == "trilinear") mode = "linear";
  Attrs attrs;
  set_attr(attrs, "antialias", int64_t{!early && int_attr(c.node, "antialias", 0) != 0});
  set_attr(attrs, "coordinate_transformation_mode", how);
  set_attr(attrs, "cubic_coeff_a", float_attr(c.node, "cubic_coeff_a", -0.75));
  set_attr(attrs, "exclude_outside", int_attr(c.node, "exclude_outside", 0));
  set_attr(attrs, "extrapolation_value", float_attr(c.node, "extrapolation_value", 0));
  set_attr(attrs, "mode", mode);
  set_attr(attrs, "nearest_mode",
           early ? std::string("floor") : string_attr(c.node, "nearest_mode", "round_prefer_floor"));
  set_attr(attrs, "roi", std::move(roi));
  set_attr(attrs, "scales", std::move(to.scales));
  set_attr(attrs, "sizes", std::move(to.sizes));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Resize, {x}, std::move(attrs));
}

// The largest, and in a node of its own where they were.
Result<std::vector<ValueId>> max_pool_with_indices(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const auto kernel = ints_attr(c.node, "kernel_shape");
  if (!kernel) return invalid_input("kernel_shape is missing");
  ASSIGN_OR_RETURN(Attrs attrs, window_attrs(c, *kernel, true));
  set_attr(attrs, "ceil_mode", int_attr(c.node, "ceil_mode", 0));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  ASSIGN_OR_RETURN(const ValueId values, emit(c, Op::MaxPool, {x}, attrs));
  set_attr(attrs, "storage_order", int_attr(c.node, "storage_order", 0));
  ASSIGN_OR_RETURN(const ValueId indices,
                   c.graph.add(Op::MaxPoolIndices, c.name + ".indices", {x}, std::move(attrs), output_name(c, 1)));
  return std::vector{values, indices};
}

Converted lp_pool(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const auto kernel = ints_attr(c.node, "kernel_shape");
  if (!kernel) return invalid_input("kernel_shape is missing");
  ASSIGN_OR_RETURN(Attrs attrs, window_attrs(c, *kernel, false));
  set_attr(attrs, "ceil_mode", int_attr(c.node, "ceil_mode", 0));
  set_attr(attrs, "p", int_attr(c.node, "p", 2));
  if (attr_int(attrs, "p") < 1) return invalid_input(fmt::format("p {}", attr_int(attrs, "p")));
  return one_to_one(c, Op::LpPool, std::move(attrs));
}

// Indices speak of the extents that the pool had at least; a larger output_shape is filled up behind.
Converted max_unpool(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const Shape x = c.type(0).shape;
  const auto kernel = ints_attr(c.node, "kernel_shape");
  if (!kernel || x.size() < 3 || kernel->size() != x.size() - 2) return invalid_input("kernel_shape is missing");
  ASSIGN_OR_RETURN(const auto strides, spatial_list(c, "strides", kernel->size(), 1));
  const auto pads = ints_attr(c.node, "pads").value_or(std::vector<int64_t>(2 * kernel->size(), 0));
  if (pads.size() != 2 * kernel->size()) return invalid_input("pads have the wrong length");
  // So that nothing below overflows: spatial_list has bounded the strides, check_type the extents.
  const auto bounded = [](const std::vector<int64_t>& list, int64_t most) {
    return std::ranges::all_of(list, [most](int64_t value) { return value >= 0 && value <= most; });
  };
  constexpr int64_t most = int64_t{1} << 20;
  if (!bounded(pads, most) || !bounded(*kernel, most)) return invalid_input("a kernel or pad beyond what is supported");
  Shape shape = {0, 0};
  for (size_t i = 0; i < kernel->size(); ++i)
    shape.push_back((x[i + 2] - 1) * strides[i] - pads[i] - pads[i + kernel->size()] + (*kernel)[i]);
  ASSIGN_OR_RETURN(const auto wanted, integers(c, "output_shape", 2));
  ASSIGN_OR_RETURN(const ValueId value, c.value(0));
  ASSIGN_OR_RETURN(const ValueId indices, c.value(1));
  Attrs attrs;
  set_attr(attrs, "shape", shape);
  if (!wanted) return emit(c, Op::MaxUnpool, {value, indices}, std::move(attrs));
  if (wanted->size() != x.size() || !bounded(*wanted, largest_extent))
    return invalid_input("output_shape has the wrong length, or extents that cannot be");
  ASSIGN_OR_RETURN(const ValueId placed, emit_helper(c, Op::MaxUnpool, ".placed", {value, indices}, std::move(attrs)));
  Attrs fill;
  std::vector<int64_t> behind(2 * x.size(), 0);
  for (size_t i = 2; i < x.size(); ++i) behind[x.size() + i] = (*wanted)[i] - shape[i];
  set_attr(fill, "pads", std::move(behind));
  set_attr(fill, "value", 0.0);
  return emit(c, Op::Pad, {placed}, std::move(fill));
}

Converted roi_align(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "coordinate_transformation_mode",
           string_attr(c.node, "coordinate_transformation_mode", c.opset < 16 ? "output_half_pixel" : "half_pixel"));
  set_attr(attrs, "mode", string_attr(c.node, "mode", "avg"));
  set_attr(attrs, "output_height", int_attr(c.node, "output_height", 1));
  set_attr(attrs, "output_width", int_attr(c.node, "output_width", 1));
  set_attr(attrs, "sampling_ratio", int_attr(c.node, "sampling_ratio", 0));
  set_attr(attrs, "spatial_scale", float_attr(c.node, "spatial_scale", 1));
  return one_to_one(c, Op::RoiAlign, std::move(attrs));
}

// Places in [-1, 1] of a regular grid, turned by a matrix a sample: [N, 2, 3] or [N, 3, 4] times columns (x, y, 1).
Converted affine_grid(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const TensorType theta = c.type(0);
  ASSIGN_OR_RETURN(const auto size, integers(c, "size", 1));
  const size_t axes = size && size->size() > 2 ? size->size() - 2 : 0;
  const auto rows = static_cast<int64_t>(axes);
  if (axes < 2 || axes > 3 || theta.shape != Shape{(*size)[0], rows, rows + 1} || !is_real(theta.dtype))
    return invalid_input(fmt::format("matrices {} for a grid of {} axes", to_string(theta), axes));
  double pixels = 1;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t extent = (*size)[i + 2];
    if (extent < 1 || extent > largest_extent) return invalid_input(fmt::format("a grid's extent of {}", extent));
    pixels *= static_cast<double>(extent);
  }
  if (pixels > 0x1p26) return unsupported(fmt::format("a grid of {} places", pixels));
  RETURN_IF_ERROR(c.spend(pixels * static_cast<double>(rows + 1)));
  const auto count = static_cast<int64_t>(pixels);
  const bool corners = int_attr(c.node, "align_corners", 0) != 0;
  std::vector<double> places;
  for (size_t coordinate = axes; coordinate-- > 0;) {  // x is the last axis
    const int64_t extent = (*size)[coordinate + 2];
    int64_t inner = 1;
    for (size_t i = coordinate + 1; i < axes; ++i) inner *= (*size)[i + 2];
    for (int64_t at = 0; at < count; ++at) {
      const auto k = static_cast<double>(at / inner % extent), n = static_cast<double>(extent);
      places.push_back(corners ? (extent == 1 ? -1 : 2 * k / (n - 1) - 1) : (2 * k + 1) / n - 1);
    }
  }
  places.insert(places.end(), static_cast<size_t>(count), 1.0);
  const TensorType type{theta.dtype, {rows + 1, count}};
  const ValueId grid = c.graph.weight(c.name + ".grid", type,
                                      c.weights.add_bytes(type, raw_of(type.dtype, std::span<const double>(places))));
  ASSIGN_OR_RETURN(const ValueId matrices, c.value(0));
  ASSIGN_OR_RETURN(const ValueId turned, emit_helper(c, Op::MatMul, ".turned", {matrices, grid}));
  Attrs perm, shape;
  set_attr(perm, "perm", std::vector<int64_t>{0, 2, 1});
  Shape out = {0};
  out.insert(out.end(), size->begin() + 2, size->end());
  out.push_back(rows);
  set_attr(shape, "shape", std::move(out));
  ASSIGN_OR_RETURN(const ValueId columns, emit_helper(c, Op::Transpose, ".columns", {turned}, std::move(perm)));
  return emit(c, Op::Reshape, {columns}, std::move(shape));
}

// Opset 20 gave the modes Resize's names.
Converted grid_sample(const ConvertContext& c) {
  std::string mode = string_attr(c.node, "mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  Attrs attrs;
  set_attr(attrs, "align_corners", int_attr(c.node, "align_corners", 0));
  set_attr(attrs, "mode", std::move(mode));
  set_attr(attrs, "padding_mode", string_attr(c.node, "padding_mode", "zeros"));
  return one_to_one(c, Op::GridSample, std::move(attrs));
}

}  // namespace

MaybeConverted convert_images(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "Resize") return one(resize(c, false));
  if (op == "Upsample") return one(resize(c, true));
  if (op == "MaxPool" && wants_output(c, 1)) return all(max_pool_with_indices(c));
  if (op == "LpPool") return one(lp_pool(c));
  if (op == "MaxUnpool") return one(max_unpool(c));
  if (op == "RoiAlign") return one(roi_align(c));
  if (op == "GridSample") return one(grid_sample(c));
  if (op == "AffineGrid") return one(affine_grid(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph
