// Images at places between their pixels: Resize, RoiAlign, GridSample.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "graph/operators/resize_taps.h"
#include "graph/operators/shapes.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// ---- Resize

// Axis by axis: every element of the result is a sum over the product of its axes' taps.
struct ResizeMap {
  std::vector<ResizedAxis> axes;
  std::vector<int64_t> strides;  // of the operand

  bool beyond(const Shape& place) const {
    for (size_t i = 0; i < place.size(); ++i) {
      if (axes[i].outside[static_cast<size_t>(place[i])]) return true;
    }
    return false;
  }
  // Calls visit(offset in the operand, weight).
  template <class Visit>
  void at(const Shape& place, const Visit& visit) const {
    Shape counts;
    for (size_t i = 0; i < place.size(); ++i) counts.push_back(std::ssize(axes[i].taps[static_cast<size_t>(place[i])]));
    for_each_index(counts, [&](const Shape& k) {
      double weight = 1;
      int64_t from = 0;
      for (size_t i = 0; i < place.size(); ++i) {
        const ResizeTap& tap = axes[i].taps[static_cast<size_t>(place[i])][static_cast<size_t>(k[i])];
        weight *= tap.weight;
        from += tap.at * strides[i];
      }
      visit(from, weight);
    });
  }
};

ResizeMap resize_map(const Attrs& attrs, const Shape& in, const Shape& out) {
  return {resized_axes(attrs, in, out), strides_of(in)};
}

void resize(const Attrs& attrs, const Array& x, Array& out) {
  const ResizeMap map = resize_map(attrs, x.type.shape, out.type.shape);
  const double extrapolated = attr_float(attrs, "extrapolation_value");
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& place) {
    double sum = 0;
    map.at(place, [&](int64_t from, double weight) { sum += weight * x.number(from); });
    out.set(at++, map.beyond(place) ? extrapolated : sum);
  });
}

void store(const std::vector<double>& values, Array& out) {
  for (int64_t i = 0; i < out.count(); ++i) out.set(i, values[static_cast<size_t>(i)]);
}

// Every element of dy goes to the taps that its place was made of.
void resize_gradient(const Attrs& attrs, const Array& dy, Array& out) {
  const ResizeMap map = resize_map(attrs, out.type.shape, dy.type.shape);
  std::vector<double> sums(static_cast<size_t>(out.count()), 0);
  int64_t at = 0;
  for_each_index(dy.type.shape, [&](const Shape& place) {
    const double given = dy.number(at++);
    if (map.beyond(place)) return;
    map.at(place, [&](int64_t to, double weight) { sums[static_cast<size_t>(to)] += weight * given; });
  });
  store(sums, out);
}

// ---- RoiAlign: He, Gkioxari, Dollár, Girshick, "Mask R-CNN", 2017; samples beyond the border as in its code.

// The four pixels around a place and their weights; none: it is beyond the border.
struct Corners {
  int64_t at[4];  // top left, top right, bottom left, bottom right
  double down, right;
  double weight(int i) const { return (i < 2 ? 1 - down : down) * (i % 2 == 0 ? 1 - right : right); }
};
std::optional<Corners> corners_of(int64_t plane, int64_t height, int64_t width, double y, double v) {
  const auto near = [](double place, int64_t extent) { return place >= -1 && place <= static_cast<double>(extent); };
  if (!near(y, height) || !near(v, width)) return std::nullopt;
  const auto split = [](double place, int64_t extent) {
    place = std::clamp(place, 0.0, static_cast<double>(extent - 1));
    const auto low = static_cast<int64_t>(place);
    return std::pair(low, place - static_cast<double>(low));
  };
  const auto [row, down] = split(y, height);
  const auto [column, right] = split(v, width);
  const int64_t below = std::min(row + 1, height - 1), beside = std::min(column + 1, width - 1);
  const int64_t top = (plane * height + row) * width, bottom = (plane * height + below) * width;
  return Corners{{top + column, top + beside, bottom + column, bottom + beside}, down, right};
}

double bilinear(const Array& x, const std::optional<Corners>& c) {
  if (!c) return 0;
  return (1 - c->down) * ((1 - c->right) * x.number(c->at[0]) + c->right * x.number(c->at[1])) +
         c->down * ((1 - c->right) * x.number(c->at[2]) + c->right * x.number(c->at[3]));
}

// Along one axis of one bin.
struct Samples {
  double start = 0;
  int64_t bin = 0;
  double size = 0;
  int64_t count = 0;

  double place(int64_t i) const {
    return start + (static_cast<double>(bin) + (static_cast<double>(i) + 0.5) / static_cast<double>(count)) * size;
  }
  // [first, last): all that are not beyond the border, and few others. A region may be far larger than the image.
  std::pair<int64_t, int64_t> near(int64_t extent) const {
    const auto index = [&](double wanted, double off) {
      const double i = ((wanted - start) / size - static_cast<double>(bin)) * static_cast<double>(count) + off;
      return std::isnan(i) ? 0 : static_cast<int64_t>(std::clamp(i, 0.0, static_cast<double>(count)));
    };
    if (!(size > 0)) return {0, count};
    const int64_t first = index(-1, -2);
    return {first, std::max(first, index(static_cast<double>(extent), 2))};
  }
};

// Calls visit(place in the result, each, samples of the bin, some of them are beyond the border), where each(use) calls
// use(corners) for every sample that is not, and few others.
template <class Visit>
void for_each_bin(const Attrs& attrs, const Array& x, const Array& rois, const Array& samples, const Shape& to,
                  const Visit& visit) {
  const bool half_pixel = attr_string(attrs, "coordinate_transformation_mode") == "half_pixel";
  const double scale = attr_float(attrs, "spatial_scale"), shift = half_pixel ? 0.5 : 0;
  const int64_t ratio = attr_int(attrs, "sampling_ratio");
  const Shape& in = x.type.shape;  // [N, C, H, W]
  int64_t at = 0;
  for_each_index(to, [&](const Shape& index) {
    const int64_t region = index[0];
    const auto corner = [&](int64_t i) { return rois.number(region * 4 + i) * scale - shift; };
    double width = corner(2) - corner(0), height = corner(3) - corner(1);
    if (!half_pixel) width = std::max(width, 1.0), height = std::max(height, 1.0);
    const double bin_h = height / static_cast<double>(to[2]), bin_w = width / static_cast<double>(to[3]);
    // One a pixel, but no more than that of a region that may be any size.
    const auto samples_in = [&](double bin) {
      const double wanted = std::ceil(bin), most = static_cast<double>(most_samples);
      return ratio > 0 ? ratio : !(wanted > 0) ? 0 : static_cast<int64_t>(std::min(wanted, most));
    };
    const int64_t rows = samples_in(bin_h), columns = samples_in(bin_w);
    const int64_t sample = std::clamp<int64_t>(samples.wholes[static_cast<size_t>(region)], 0, in[0] - 1);
    const Samples down{corner(1), index[2], bin_h, rows}, right{corner(0), index[3], bin_w, columns};
    const auto [top, bottom] = down.near(in[2]);
    const auto [left, end] = right.near(in[3]);
    const auto each = [&, top = top, bottom = bottom, left = left, end = end](const auto& use) {
      for (int64_t r = top; r < bottom; ++r) {
        for (int64_t c = left; c < end; ++c)
          use(corners_of(sample * in[1] + index[1], in[2], in[3], down.place(r), right.place(c)));
      }
    };
    visit(at++, each, rows * columns, bottom - top < rows || end - left < columns);
  });
}

void roi_align(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array& x = *inputs[0];
  const bool takes_largest = attr_string(attrs, "mode") == "max";
  for_each_bin(attrs, x, *inputs[1], *inputs[2], out.type.shape,
               [&](int64_t at, const auto& each, int64_t count, bool some_beyond) {
                 double sum = 0, largest = some_beyond ? 0 : -std::numeric_limits<double>::infinity();
                 each([&](const std::optional<Corners>& corners) {
                   const double value = bilinear(x, corners);
                   sum += value;
                   largest = std::max(largest, value);
                 });
                 if (count == 0) largest = 0;
                 out.set(at, takes_largest ? largest : sum / static_cast<double>(std::max<int64_t>(count, 1)));
               });
}

// An equal share to every sample, or all to the first of the largest.
void roi_align_gradient(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &dy = *inputs[0], &x = *inputs[1];
  const bool takes_largest = attr_string(attrs, "mode") == "max";
  std::vector<double> sums(static_cast<size_t>(out.count()), 0);
  for_each_bin(attrs, x, *inputs[2], *inputs[3], dy.type.shape,
               [&](int64_t at, const auto& each, int64_t count, bool some_beyond) {
                 const auto give = [&](const std::optional<Corners>& corners, double share) {
                   for (int i = 0; corners && i < 4; ++i)
                     sums[static_cast<size_t>(corners->at[i])] += share * corners->weight(i);
                 };
                 if (!takes_largest) {
                   const double share = dy.number(at) / static_cast<double>(count);
                   each([&](const std::optional<Corners>& corners) { give(corners, share); });
                   return;
                 }
                 double largest = some_beyond ? 0 : -std::numeric_limits<double>::infinity();
                 std::optional<Corners> best;
                 each([&](const std::optional<Corners>& corners) {
                   if (const double value = bilinear(x, corners); value > largest) largest = value, best = corners;
                 });
                 give(best, dy.number(at));
               });
  store(sums, out);
}

// ---- GridSample

// Mirrored at both ends until it is between them.
double reflected(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  const double past = std::abs(x < low ? low - x : x > high ? x - high : 0);
  if (past == 0) return x;
  const double turns = std::floor(past / range), rest = past - turns * range;
  const bool even = std::fmod(turns, 2) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

struct Sampler {
  const Array& x;
  int64_t height, width;
  std::string padding;
  bool corners;

  double place(double normalised, int64_t extent) const {
    const auto n = static_cast<double>(extent);
    return corners ? (normalised + 1) / 2 * (n - 1) : ((normalised + 1) * n - 1) / 2;
  }
  // The pixel that stands for one outside; -1: a zero.
  int64_t fixed(int64_t at, int64_t extent) const {
    if (at >= 0 && at < extent) return at;
    if (padding == "zeros") return -1;
    const auto n = static_cast<double>(extent);
    if (padding == "reflection") {
      const double low = corners ? 0 : -0.5, high = corners ? n - 1 : n - 0.5;
      at = static_cast<int64_t>(reflected(static_cast<double>(at), low, high));
    }
    return std::clamp<int64_t>(at, 0, extent - 1);
  }
  // Where in the image; -1: nowhere.
  int64_t offset(int64_t plane, int64_t row, int64_t column) const {
    row = fixed(row, height), column = fixed(column, width);
    return row < 0 || column < 0 ? -1 : (plane * height + row) * width + column;
  }
  double pixel(int64_t plane, int64_t row, int64_t column) const {
    const int64_t at = offset(plane, row, column);
    return at < 0 ? 0 : x.number(at);
  }
};

// Along one axis: the weights of four neighbours from `first` on, and how they change with the place.
struct Neighbours {
  int64_t first = 0;
  double weights[4] = {0, 1, 0, 0}, slopes[4] = {0, 0, 0, 0};
};
Neighbours neighbours_of(const std::string& mode, double place) {
  if (mode == "nearest") return {static_cast<int64_t>(std::nearbyint(place)) - 1};
  const double t = place - std::floor(place);
  Neighbours n{static_cast<int64_t>(std::floor(place)) - 1, {0, 1 - t, t, 0}, {0, -1, 1, 0}};
  if (mode == "linear") return n;
  constexpr double a = -0.75;
  cubic_weights(t, a, n.weights);
  const auto near = [](double d) { return (3 * (a + 2) * d - 2 * (a + 3)) * d; };
  const auto far = [](double d) { return (3 * a * d - 10 * a) * d + 8 * a; };
  n.slopes[0] = far(1 + t), n.slopes[1] = near(t), n.slopes[2] = -near(1 - t), n.slopes[3] = -far(2 - t);
  return n;
}

void grid_sample(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &grid = *inputs[1];
  const Shape &in = x.type.shape, &to = out.type.shape;
  const Sampler sampler{x, in[2], in[3], attr_string(attrs, "padding_mode"), attr_int(attrs, "align_corners") != 0};
  const std::string& mode = attr_string(attrs, "mode");
  int64_t at = 0;
  for_each_index(to, [&](const Shape& index) {
    const int64_t plane = index[0] * to[1] + index[1];
    const int64_t from = ((index[0] * to[2] + index[2]) * to[3] + index[3]) * 2;
    const Neighbours columns = neighbours_of(mode, bounded_place(sampler.place(grid.number(from), in[3])));
    const Neighbours rows = neighbours_of(mode, bounded_place(sampler.place(grid.number(from + 1), in[2])));
    if (mode == "nearest") {
      out.set(at++, sampler.pixel(plane, rows.first + 1, columns.first + 1));
      return;
    }
    double sum = 0;
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 4; ++c) {
        if (rows.weights[r] == 0 || columns.weights[c] == 0) continue;
        sum += rows.weights[r] * columns.weights[c] * sampler.pixel(plane, rows.first + r, columns.first + c);
      }
    }
    out.set(at++, sum);
  });
}

// By the pixels that a place was made of, and by the place: (column, row) as the grid has it, -1 to 1 over the image.
void grid_sample_gradient(const Attrs& attrs, const Arrays& inputs, Array& by_x, Array& by_grid) {
  const Array &dy = *inputs[0], &x = *inputs[1], &grid = *inputs[2];
  const Shape &in = x.type.shape, &to = dy.type.shape;
  const Sampler sampler{x, in[2], in[3], attr_string(attrs, "padding_mode"), attr_int(attrs, "align_corners") != 0};
  const std::string& mode = attr_string(attrs, "mode");
  const auto stretch = [&](int64_t extent) { return sampler.place(1, extent) - sampler.place(0, extent); };
  std::vector<double> pixels(static_cast<size_t>(by_x.count()), 0), places(static_cast<size_t>(by_grid.count()), 0);
  int64_t at = 0;
  for_each_index(to, [&](const Shape& index) {
    const int64_t plane = index[0] * to[1] + index[1];
    const int64_t from = ((index[0] * to[2] + index[2]) * to[3] + index[3]) * 2;
    const Neighbours columns = neighbours_of(mode, bounded_place(sampler.place(grid.number(from), in[3])));
    const Neighbours rows = neighbours_of(mode, bounded_place(sampler.place(grid.number(from + 1), in[2])));
    const double given = dy.number(at++);
    double by_column = 0, by_row = 0;
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 4; ++c) {
        const int64_t pixel = sampler.offset(plane, rows.first + r, columns.first + c);
        if (pixel < 0) continue;
        pixels[static_cast<size_t>(pixel)] += given * rows.weights[r] * columns.weights[c];
        by_column += rows.weights[r] * columns.slopes[c] * x.number(pixel);
        by_row += rows.slopes[r] * columns.weights[c] * x.number(pixel);
      }
    }
    places[static_cast<size_t>(from)] += given * by_column * stretch(in[3]);
    places[static_cast<size_t>(from) + 1] += given * by_row * stretch(in[2]);
  });
  store(pixels, by_x);
  store(places, by_grid);
}

}  // namespace

// clang-format off
NLS_REFERENCE(Resize, resize(attrs, *in[0], out))
NLS_REFERENCE(RoiAlign, roi_align(attrs, in, out))
NLS_REFERENCE(GridSample, grid_sample(attrs, in, out))
NLS_REFERENCE(ResizeGradient, resize_gradient(attrs, *in[0], out))
NLS_REFERENCE(RoiAlignGradient, roi_align_gradient(attrs, in, out))
NLS_REFERENCE(GridSampleGradient, grid_sample_gradient(attrs, in, out, outputs[1]))
// clang-format on

}  // namespace nlsplit::inline graph::reference
