#include "graph/operators/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace nlsplit::inline graph {
namespace {

struct ScaledAxis {
  int64_t in, out;
  double scale, start, end;  // of the region of interest

  // ONNX's reference takes the scale times the extent for the result's, a fraction.
  double length() const { return scale * static_cast<double>(in); }
};

double source_of(const std::string& mode, const ScaledAxis& axis, int64_t place) {
  const auto o = static_cast<double>(place), in = static_cast<double>(axis.in);
  if (mode == "align_corners") return axis.length() == 1 ? 0 : o * (in - 1) / (axis.length() - 1);
  if (mode == "asymmetric") return o / axis.scale;
  if (mode == "tf_half_pixel_for_nn") return (o + 0.5) / axis.scale;
  if (mode == "pytorch_half_pixel") return axis.length() == 1 ? 0 : (o + 0.5) / axis.scale - 0.5;
  if (mode == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(axis.out) / axis.length();
    return in / 2 * (1 - adjustment) + (o + 0.5) / axis.scale - 0.5;
  }
  if (mode == "tf_crop_and_resize") {
    if (axis.out == 1) return (axis.start + axis.end) / 2 * (in - 1);
    return axis.start * (in - 1) + o * (axis.end - axis.start) * (in - 1) / static_cast<double>(axis.out - 1);
  }
  return (o + 0.5) / axis.scale - 0.5;  // half_pixel
}

int64_t nearest_pixel(const std::string& mode, double x) {
  const double place = mode == "floor"               ? std::floor(x)
                       : mode == "ceil"              ? std::ceil(x)
                       : mode == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                     : std::ceil(x - 0.5);
  return static_cast<int64_t>(place);
}

// A smaller result: the same curve, wider by as much, over all pixels it covers.
std::vector<ResizeTap> smoothed_taps(const Attrs& attrs, const ScaledAxis& axis, double x) {
  const bool cubic = attr_string(attrs, "mode") == "cubic", excludes = attr_int(attrs, "exclude_outside") != 0;
  const double a = attr_float(attrs, "cubic_coeff_a"), reach = (cubic ? 2 : 1) / axis.scale;
  const auto curve = [&](double d) {
    d = std::abs(d);
    if (!cubic) return std::max(0.0, 1 - d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0.0;
  };
  std::vector<ResizeTap> taps;
  double sum = 0;
  for (auto at = static_cast<int64_t>(std::floor(x - reach)) + 1; static_cast<double>(at) < x + reach; ++at) {
    if (excludes && (at < 0 || at >= axis.in)) continue;
    const double weight = curve((static_cast<double>(at) - x) * axis.scale);
    taps.push_back({std::clamp<int64_t>(at, 0, axis.in - 1), weight});
    sum += weight;
  }
  for (ResizeTap& tap : taps) tap.weight /= sum;
  return taps;
}

std::vector<ResizeTap> taps_of(const Attrs& attrs, const ScaledAxis& axis, double x) {
  const std::string& mode = attr_string(attrs, "mode");
  const auto inside = [&](int64_t at) { return std::clamp<int64_t>(at, 0, axis.in - 1); };
  if (mode == "nearest") return {{inside(nearest_pixel(attr_string(attrs, "nearest_mode"), x)), 1}};
  const double floor = std::floor(x);
  const auto first = static_cast<int64_t>(floor);
  if (attr_int(attrs, "antialias") != 0 && axis.scale < 1) return smoothed_taps(attrs, axis, x);
  if (mode == "linear") return {{inside(first), 1 - (x - floor)}, {inside(first + 1), x - floor}};
  double weights[4];
  cubic_weights(x - floor, attr_float(attrs, "cubic_coeff_a"), weights);
  const bool excludes = attr_int(attrs, "exclude_outside") != 0;
  std::vector<ResizeTap> taps;
  double sum = 0;
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t at = first - 1 + k;
    if (excludes && inside(at) != at) continue;
    taps.push_back({inside(at), weights[k]});
    sum += weights[k];
  }
  for (ResizeTap& tap : taps) tap.weight /= excludes ? sum : 1;
  return taps;
}

}  // namespace

void cubic_weights(double t, double a, double (&weights)[4]) {
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  weights[0] = far(1 + t), weights[1] = near(t), weights[2] = near(1 - t), weights[3] = far(2 - t);
}

double bounded_place(double place) { return std::isnan(place) ? -1e15 : std::clamp(place, -1e15, 1e15); }

std::vector<ResizedAxis> resized_axes(const Attrs& attrs, const Shape& in, const Shape& out) {
  const std::string& mode = attr_string(attrs, "coordinate_transformation_mode");
  const auto &scales = attr_floats(attrs, "scales"), &roi = attr_floats(attrs, "roi");
  const size_t rank = in.size();
  std::vector<ResizedAxis> axes(rank);
  for (size_t i = 0; i < rank; ++i) {
    const ScaledAxis axis{in[i], out[i], scales[i], roi[i], roi[rank + i]};
    const bool same =
        axis.in == axis.out && axis.scale == 1 && (mode != "tf_crop_and_resize" || (roi[i] == 0 && roi[rank + i] == 1));
    for (int64_t o = 0; o < axis.out; ++o) {
      const double at = same ? static_cast<double>(o) : bounded_place(source_of(mode, axis, o));
      axes[i].taps.push_back(same ? std::vector<ResizeTap>{{o, 1}} : taps_of(attrs, axis, at));
      axes[i].outside.push_back(mode == "tf_crop_and_resize" && (at < 0 || at > static_cast<double>(axis.in - 1)));
    }
  }
  return axes;
}

}  // namespace nlsplit::inline graph
