// Images at places between their pixels that an operand names: GridSample, and RoiAlign with as many samples in each
// bin as it says.
#include <limits>

#include "kernels/generated/functions.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

// A pixel along one axis.
struct PixelTap {
  int at;           // inside of the image
  int weight = -1;  // f64; -1: 1
  int inside = -1;  // where it is false a zero stands for it; -1: never
};

int whole_inside(LoopWriter& w, int place, int64_t extent) {
  return w.clamped(w.convert(LoopCode::whole_of, place, Scalar::whole), 0, extent - 1);
}

// Mirrored at both ends until it is between them.
int mirrored(LoopWriter& w, int x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return w.number(low);
  const int below = w.less(x, w.number(low)), above = w.less(w.number(high), x);
  const int past =
      w.choose(below, w.subtract(w.number(low), x), w.choose(above, w.subtract(x, w.number(high)), w.number(0)));
  const int turns = w.unary(LoopCode::floor, w.divide(past, w.number(range)));
  const int rest = w.subtract(past, w.multiply(turns, w.number(range)));
  const int half = w.multiply(turns, w.number(0.5));
  const int is_even = w.equal(w.unary(LoopCode::cut, half), half);
  const int from_high = w.binary(LoopCode::differ, below, is_even);
  const int turned = w.choose(from_high, w.subtract(w.number(high), rest), w.add(w.number(low), rest));
  return w.choose(w.equal(past, w.number(0)), x, turned);
}

// GridSample's along one axis of the image.
class AxisSampler {
 public:
  AxisSampler(LoopWriter& w, const Attrs& attrs, int64_t extent)
      : w_(w),
        extent_(extent),
        mode_(attr_string(attrs, "mode")),
        padding_(attr_string(attrs, "padding_mode")),
        corners_(attr_int(attrs, "align_corners") != 0) {}

  // normalised: -1 to 1 over the image.
  std::vector<PixelTap> taps(int normalised) const {
    const int place = place_of(normalised), one = w_.number(1);
    if (mode_ == "nearest") return {tap(w_.unary(LoopCode::nearest, place), -1)};
    const int first = w_.unary(LoopCode::floor, place), t = w_.subtract(place, first);
    const int rest = w_.subtract(one, t), second = w_.add(first, one);
    if (mode_ == "linear") return {tap(first, rest), tap(second, t)};
    return {tap(w_.subtract(first, one), far(w_.add(one, t))), tap(first, near(t)), tap(second, near(rest)),
            tap(w_.add(first, w_.number(2)), far(w_.subtract(w_.number(2), t)))};
  }

 private:
  int place_of(int normalised) const {
    const auto n = static_cast<double>(extent_);
    const int shifted = w_.add(normalised, w_.number(1)), two = w_.number(2);
    const int place = corners_ ? w_.multiply(w_.divide(shifted, two), w_.number(n - 1))
                               : w_.divide(w_.subtract(w_.multiply(shifted, w_.number(n)), w_.number(1)), two);
    constexpr double far_outside = 1e15;  // beyond it there are no fractions
    return w_.choose(w_.is_nan(place), w_.number(-far_outside), within(w_, place, -far_outside, far_outside));
  }
  // Keys, "Cubic convolution interpolation for digital image processing", 1981.
  int near(int d) const {
    const int inner = w_.subtract(w_.multiply(w_.number(a + 2), d), w_.number(a + 3));
    return w_.add(w_.multiply(w_.multiply(inner, d), d), w_.number(1));
  }
  int far(int d) const {
    int sum = w_.subtract(w_.multiply(w_.number(a), d), w_.number(5 * a));
    sum = w_.add(w_.multiply(sum, d), w_.number(8 * a));
    return w_.subtract(w_.multiply(sum, d), w_.number(4 * a));
  }
  PixelTap tap(int at, int weight) const {
    const auto n = static_cast<double>(extent_);
    if (padding_ == "reflection") at = mirrored(w_, at, corners_ ? 0 : -0.5, corners_ ? n - 1 : n - 0.5);
    PixelTap tap{whole_inside(w_, at, extent_), weight, -1};
    if (padding_ == "zeros") tap.inside = w_.both(w_.invert(w_.less(at, w_.number(0))), w_.less(at, w_.number(n)));
    return tap;
  }

  static constexpr double a = -0.75;
  LoopWriter& w_;
  const int64_t extent_;
  const std::string &mode_, &padding_;
  const bool corners_;
};

// The pixel at a row and a column, of the plane that begins at `plane`.
Element pixel(LoopWriter& w, int plane, int64_t width, const PixelTap& row, const PixelTap& column) {
  const int at = w.add(plane, w.add(w.multiply(row.at, w.integer(width)), column.at));
  const Element x = w.read(0, at);
  if (row.inside < 0) return x;
  return w.chosen(w.both(row.inside, column.inside), x, w.rounded(w.number(0), x.dtype));
}

void grid_sample(LoopWriter& w, const ComputeDesc& desc) {
  const Shape &in = desc.inputs[0].shape, &to = desc.outputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(in), of_grid = row_major_strides(desc.inputs[1].shape);
  Space space(to, 2);
  for (const size_t axis : {0, 1}) space.along(0, axis).step = strides[axis];
  space.along(1, 0).step = of_grid[0];
  for (const size_t axis : {2, 3}) space.along(1, axis).step = of_grid[axis - 1];
  space.simplify();
  w.loops.extents = space.extents();
  const int plane = space.index(w, 0), grid = space.index(w, 1);
  const auto coordinate = [&](int64_t which) { return w.real(w.read(1, w.add(grid, w.integer(which)))); };
  const std::vector<PixelTap> columns = AxisSampler(w, desc.attrs, in[3]).taps(coordinate(0));
  const std::vector<PixelTap> rows = AxisSampler(w, desc.attrs, in[2]).taps(coordinate(1));
  if (rows.size() == 1) return finish(w, desc, pixel(w, plane, in[3], rows[0], columns[0]), space.place(w));
  int sum = w.number(0);
  for (const PixelTap& row : rows) {
    for (const PixelTap& column : columns) {
      const int part = w.multiply(w.multiply(row.weight, column.weight), w.real(pixel(w, plane, in[3], row, column)));
      // Infinite pixels of no weight are not there.
      const int is_none = w.either(w.equal(row.weight, w.number(0)), w.equal(column.weight, w.number(0)));
      sum = w.choose(is_none, sum, w.add(sum, part));
    }
  }
  finish(w, desc, w.rounded(sum, desc.outputs[0].dtype), space.place(w));
}

// ---- RoiAlign

// One sample of a bin along one axis: the pixels before and behind it, and how far it is from the one before.
struct BinSample {
  int low, high;  // whole
  int behind;     // f64
  int is_near;    // not beyond the border
};

BinSample bin_sample(LoopWriter& w, int place, int64_t extent) {
  const auto n = static_cast<double>(extent);
  const int outside = w.either(w.less(place, w.number(-1)), w.less(w.number(n), place));
  const int bounded = within(w, place, 0, n - 1), cut = w.unary(LoopCode::cut, bounded);
  const int low = whole_inside(w, cut, extent);
  const int high = w.binary(LoopCode::smaller, w.add(low, w.integer(1)), w.integer(extent - 1));
  return {low, high, w.subtract(bounded, cut), w.invert(w.either(outside, w.is_nan(place)))};
}

int bilinear(LoopWriter& w, int plane, int64_t width, const BinSample& row, const BinSample& column) {
  const auto at = [&](int line, int place) {
    return w.real(w.read(0, w.add(plane, w.add(w.multiply(line, w.integer(width)), place))));
  };
  const auto between = [&](int share, int first, int second) {
    return w.add(w.multiply(w.subtract(w.number(1), share), first), w.multiply(share, second));
  };
  const int top = between(column.behind, at(row.low, column.low), at(row.low, column.high));
  const int bottom = between(column.behind, at(row.high, column.low), at(row.high, column.high));
  return w.choose(w.both(row.is_near, column.is_near), between(row.behind, top, bottom), w.number(0));
}

void roi_align(LoopWriter& w, const ComputeDesc& desc) {
  const Shape &in = desc.inputs[0].shape, &to = desc.outputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(in);
  const bool half_pixel = attr_string(desc.attrs, "coordinate_transformation_mode") == "half_pixel";
  const double scale = attr_float(desc.attrs, "spatial_scale");
  const int64_t ratio = attr_int(desc.attrs, "sampling_ratio");
  Space space(to, 2);
  space.along(0, 0).step = 1;  // the region
  space.along(1, 1).step = strides[1];
  space.keep_apart(2), space.keep_apart(3);
  space.simplify();
  w.loops.extents = space.extents();
  w.loops.axes = static_cast<int>(w.loops.extents.size());
  const int region = space.index(w, 0);
  const int sample = w.clamped(w.read(2, region).term, 0, in[0] - 1);
  const int plane = w.add(space.index(w, 1), w.multiply(sample, w.integer(strides[0])));
  Fold fold{.first_axis = w.loops.axes, .end_axis = w.loops.axes + 2, .end_accumulator = 1};
  w.loops.extents.insert(w.loops.extents.end(), 2, ratio);
  // which: 0 of columns, 1 of rows, as the regions' corners are.
  const auto along = [&](int which) {
    const auto corner = [&](int64_t i) {
      const int at = w.add(w.multiply(region, w.integer(4)), w.integer(i));
      return w.subtract(w.multiply(w.real(w.read(1, at)), w.number(scale)), w.number(half_pixel ? 0.5 : 0));
    };
    const auto axis = static_cast<size_t>(3 - which);
    const auto natural = [&](int x) { return w.convert(LoopCode::real_of, x, Scalar::f64); };
    const int start = corner(which);
    int size = w.subtract(corner(which + 2), start);
    if (!half_pixel) size = w.choose(w.less(size, w.number(1)), w.number(1), size);
    const int bin_size = w.divide(size, w.number(static_cast<double>(to[axis])));
    const int bin = space.axis_of(axis) < 0 ? w.integer(0) : w.axis(space.axis_of(axis));
    const int step = w.add(natural(w.axis(fold.first_axis + 1 - which)), w.number(0.5));
    const int within_bin = w.divide(step, w.number(static_cast<double>(ratio)));
    return bin_sample(w, w.add(start, w.multiply(w.add(natural(bin), within_bin), bin_size)), in[axis]);
  };
  const int value = bilinear(w, plane, in[3], along(1), along(0));
  const bool largest = attr_string(desc.attrs, "mode") == "max";
  int result = w.carried(0, Scalar::f64);
  w.loops.accumulators.push_back({w.number(largest ? -std::numeric_limits<double>::infinity() : 0),
                                  largest ? w.choose(w.less(result, value), value, result) : w.add(result, value)});
  w.loops.folds.push_back(fold);
  if (!largest) result = w.divide(result, w.number(static_cast<double>(ratio * ratio)));
  finish(w, desc, w.rounded(result, desc.outputs[0].dtype), space.place(w));
}

}  // namespace

std::string refuse_sampling(const ComputeDesc& desc) {
  if (desc.op == Op::RoiAlign && attr_int(desc.attrs, "sampling_ratio") == 0)
    return "samples whose number depends on the region";
  return element_count(desc.inputs[0].shape) == 0 ? "there is nothing to sample" : "";
}

Loops lower_sampling(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  if (desc.op == Op::GridSample)
    grid_sample(w, desc);
  else
    roi_align(w, desc);
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
