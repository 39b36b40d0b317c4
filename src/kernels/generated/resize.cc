// Resize: each axis of the result has a table of places and, but for nearest neighbours, one of weights a tap.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/resize_taps.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

// Tables of one axis that is a sum of taps: [tap], by the position along the axis.
struct TapTables {
  std::vector<int> places = {}, weights = {};
  size_t axis = 0;  // of the result
};

bool takes_one(const ResizedAxis& axis) {
  return std::ranges::all_of(axis.taps, [](const std::vector<ResizeTap>& taps) { return taps.size() == 1; });
}

TapTables add_tap_tables(LoopWriter& w, const ResizedAxis& from, size_t axis, int64_t stride) {
  TapTables tables;
  tables.axis = axis;
  for (size_t k = 0; k < from.taps[0].size(); ++k) {
    std::vector<int64_t> places;
    std::vector<double> weights;
    for (const std::vector<ResizeTap>& taps : from.taps) {
      places.push_back(taps[k].at * stride);
      weights.push_back(taps[k].weight);
    }
    tables.places.push_back(w.add_table(std::move(places)));
    tables.weights.push_back(w.add_table(std::move(weights)));
  }
  return tables;
}

}  // namespace

std::string refuse_resize(const ComputeDesc& desc) {
  constexpr int64_t most = 1 << 16;  // places of a table
  const std::string& mode = attr_string(desc.attrs, "mode");
  const auto& scales = attr_floats(desc.attrs, "scales");
  const bool smaller = std::ranges::any_of(scales, [](double scale) { return scale < 1; });
  if (mode != "nearest" && attr_int(desc.attrs, "antialias") != 0 && smaller)
    return "taps that differ in number from place to place";
  if (mode == "cubic" && attr_int(desc.attrs, "exclude_outside") != 0)
    return "taps that differ in number from place to place";
  const bool crops = attr_string(desc.attrs, "coordinate_transformation_mode") == "tf_crop_and_resize";
  int64_t taps = 1;
  for (size_t axis = 0; axis < desc.outputs[0].shape.size(); ++axis) {
    if (desc.outputs[0].shape[axis] > most) return "an extent too long for a table";
    const bool same = scales[axis] == 1 && desc.inputs[0].shape[axis] == desc.outputs[0].shape[axis] && !crops;
    if (mode != "nearest" && !same) taps *= mode == "linear" ? 2 : 4;
    if (taps > 64) return "its taps are too many";
  }
  return element_count(desc.inputs[0].shape) == 0 ? "there is nothing to resize" : "";
}

Loops lower_resize(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const Shape &from = desc.inputs[0].shape, &to = desc.outputs[0].shape;
  const DType type = desc.outputs[0].dtype;
  const std::vector<int64_t> strides = row_major_strides(from);
  const std::vector<ResizedAxis> axes = resized_axes(desc.attrs, from, to);
  Space space(to, 1);
  std::vector<TapTables> tables;
  for (size_t axis = 0; axis < to.size() && element_count(to) > 0; ++axis) {
    if (takes_one(axes[axis])) {
      for (const std::vector<ResizeTap>& taps : axes[axis].taps)
        space.along(0, axis).table.push_back(taps[0].at * strides[axis]);
    } else {
      tables.push_back(add_tap_tables(w, axes[axis], axis, strides[axis]));
      space.keep_apart(axis);
    }
    if (std::ranges::find(axes[axis].outside, true) != axes[axis].outside.end()) space.keep_apart(axis);
  }
  space.simplify();
  w.loops.extents = space.extents();
  const auto position = [&](size_t axis) {
    return space.axis_of(axis) < 0 ? w.integer(0) : w.axis(space.axis_of(axis));
  };
  const int start = space.index(w, 0), place = space.place(w);
  Element result;
  if (tables.empty()) {
    result = w.read(0, start);
  } else {
    // Every combination of one tap an axis, the last axis the fastest.
    std::vector<size_t> tap(tables.size(), 0);
    int sum = w.number(0);  // as the reference begins: a sum of negative zeros is zero
    for (bool more = true; more;) {
      int index = start, weight = -1;
      for (size_t k = 0; k < tables.size(); ++k) {
        const int at = position(tables[k].axis);
        index = w.add(index, w.entry(tables[k].places[tap[k]], at));
        const int own = w.entry(tables[k].weights[tap[k]], at);
        weight = weight < 0 ? own : w.multiply(weight, own);
      }
      const int part = w.multiply(weight, w.real(w.read(0, index)));
      sum = w.add(sum, part);
      size_t k = tables.size();
      while (k > 0 && ++tap[k - 1] == tables[k - 1].places.size()) tap[--k] = 0;
      more = k > 0;
    }
    result = w.rounded(sum, type);
  }
  int beyond = -1;
  for (size_t axis = 0; axis < to.size() && element_count(to) > 0; ++axis) {
    const std::vector<bool>& outside = axes[axis].outside;
    if (std::ranges::find(outside, true) == outside.end()) continue;
    const int entry = w.entry(w.add_table(std::vector<int64_t>(outside.begin(), outside.end())), position(axis));
    const int here = w.equal(entry, w.integer(1));
    beyond = beyond < 0 ? here : w.either(beyond, here);
  }
  if (beyond >= 0) {
    const Element outside = w.rounded(w.number(attr_float(desc.attrs, "extrapolation_value")), type);
    result = w.chosen(beyond, outside, result);
  }
  finish(w, desc, result, place);
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
