// Convolutions and pools over any number of spatial axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

struct WindowOfAnyAxes {
  Shape kernel, strides, dilations, pads;
  Shape in, out;  // spatial extents
  std::vector<int64_t> in_strides;

  // Where tap `k` of the window at `place` lies in the plane; -1: in the padding. `beyond` if it lies even past that.
  int64_t tap(const Shape& place, const Shape& k, bool& beyond) const {
    int64_t offset = 0;
    bool inside = true;
    for (size_t axis = 0; axis < in.size(); ++axis) {
      const int64_t at = place[axis] * strides[axis] - pads[axis] + k[axis] * dilations[axis];
      inside = inside && at >= 0 && at < in[axis];
      beyond = beyond || at >= in[axis] + pads[axis + in.size()];
      offset += at * in_strides[axis];
    }
    return inside ? offset : -1;
  }
};

Shape spatial(const TensorType& type) { return {type.shape.begin() + 2, type.shape.end()}; }

WindowOfAnyAxes window_of(const Attrs& attrs, const TensorType& in, const TensorType& out) {
  WindowOfAnyAxes w;
  w.kernel = attr_ints(attrs, "kernel_shape");
  w.strides = attr_ints(attrs, "strides");
  w.pads = attr_ints(attrs, "pads");
  w.dilations.assign(w.kernel.size(), 1);
  if (find_attr(attrs, "dilations") != nullptr) w.dilations = attr_ints(attrs, "dilations");
  w.in = spatial(in), w.out = spatial(out);
  w.in_strides = strides_of(w.in);
  return w;
}

void conv(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &weights = *inputs[1];
  const WindowOfAnyAxes w = window_of(attrs, x.type, out.type);
  const int64_t filters = out.type.shape[1], depth = weights.type.shape[1], channels = x.type.shape[1];
  const int64_t filters_per_group = filters / attr_int(attrs, "group");
  const int64_t plane = element_count(w.in), taps = element_count(w.kernel), pixels = element_count(w.out);
  parallel_for(out.type.shape[0] * filters, [&](int64_t nm) {
    const int64_t n = nm / filters, m = nm % filters, first = m / filters_per_group * depth;
    int64_t at = nm * pixels;
    for_each_index(w.out, [&](const Shape& place) {
      double sum = inputs.size() > 2 ? inputs[2]->number(m) : 0.0;
      int64_t tap = 0;
      for_each_index(w.kernel, [&](const Shape& k) {
        bool beyond = false;
        const int64_t from = w.tap(place, k, beyond);
        for (int64_t c = 0; from >= 0 && c < depth; ++c) {
          sum += x.number((n * channels + first + c) * plane + from) * weights.number((m * depth + c) * taps + tap);
        }
        ++tap;
      });
      out.set(at++, sum);
    });
  });
}

// Every input element, times a filter, is added to the window of the output it would be computed from: the window of a
// convolution of the output.
void conv_transpose(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &weights = *inputs[1];
  const WindowOfAnyAxes w = window_of(attrs, out.type, x.type);  // slides over the output
  const int64_t channels = x.type.shape[1], filters = out.type.shape[1], per_group = weights.type.shape[1];
  const int64_t channels_per_group = channels / attr_int(attrs, "group");
  const int64_t plane = element_count(w.in), taps = element_count(w.kernel), pixels = element_count(w.out);
  parallel_for(out.type.shape[0] * filters, [&](int64_t nm) {
    const int64_t n = nm / filters, m = nm % filters;
    std::vector<double> sums(static_cast<size_t>(plane), inputs.size() > 2 ? inputs[2]->number(m) : 0.0);
    int64_t pixel = 0;
    for_each_index(w.out, [&](const Shape& place) {
      int64_t tap = 0;
      for_each_index(w.kernel, [&](const Shape& k) {
        bool beyond = false;
        const int64_t to = w.tap(place, k, beyond);
        for (int64_t i = 0; to >= 0 && i < channels_per_group; ++i) {
          const int64_t c = m / per_group * channels_per_group + i;
          sums[static_cast<size_t>(to)] += x.number((n * channels + c) * pixels + pixel) *
                                           weights.number((c * per_group + m % per_group) * taps + tap);
        }
        ++tap;
      });
      ++pixel;
    });
    for (int64_t i = 0; i < plane; ++i) out.set(nm * plane + i, sums[static_cast<size_t>(i)]);
  });
}

// A plane's offset with the spatial axes the other way around.
int64_t column_major(int64_t offset, const Shape& extents) {
  int64_t result = 0, factor = element_count(extents);
  for (size_t axis = extents.size(); axis-- > 0;) {
    factor /= extents[axis];
    result += offset % extents[axis] * factor;
    offset /= extents[axis];
  }
  return result;
}

void pool(Op op, const Attrs& attrs, const Array& x, Array& out) {
  const WindowOfAnyAxes w = window_of(attrs, x.type, out.type);
  const bool counts_padding = op == Op::AveragePool && attr_int(attrs, "count_include_pad") != 0;
  const double p = op == Op::LpPool ? static_cast<double>(attr_int(attrs, "p")) : 1;
  const bool columns = op == Op::MaxPoolIndices && attr_int(attrs, "storage_order") != 0;
  const int64_t plane = element_count(w.in), pixels = element_count(w.out);
  parallel_for(x.type.shape[0] * x.type.shape[1], [&](int64_t nc) {
    int64_t at = nc * pixels;
    for_each_index(w.out, [&](const Shape& place) {
      double sum = 0, largest = -std::numeric_limits<double>::infinity();
      int64_t count = 0, where = -1;
      for_each_index(w.kernel, [&](const Shape& k) {
        bool beyond = false;
        const int64_t from = w.tap(place, k, beyond);
        if (from >= 0 || (counts_padding && !beyond)) ++count;  // padding, but not what lies behind it in ceil_mode
        if (from < 0) return;
        const double value = x.number(nc * plane + from);
        sum += op == Op::LpPool ? std::pow(std::abs(value), p) : value;
        if (where < 0 || value > largest) {
          largest = value;
          where = from;
        }
      });
      if (op == Op::MaxPoolIndices)
        out.wholes[static_cast<size_t>(at)] =
            nc * plane + (columns ? column_major(std::max<int64_t>(where, 0), w.in) : std::max<int64_t>(where, 0));
      else
        out.set(at, op == Op::MaxPool       ? largest
                    : op == Op::AveragePool ? sum / static_cast<double>(count)
                                            : std::pow(sum, 1 / p));
      ++at;
    });
  });
}

// dw[m][c][tap] = Σ dy[n][m][place] x[n][c of m's group][place + tap]
void conv_weight_gradient(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &dy = *inputs[1];
  const WindowOfAnyAxes w = window_of(attrs, x.type, dy.type);
  const int64_t filters = dy.type.shape[1], depth = out.type.shape[1], channels = x.type.shape[1];
  const int64_t filters_per_group = filters / attr_int(attrs, "group");
  const int64_t plane = element_count(w.in), taps = element_count(w.kernel), pixels = element_count(w.out);
  parallel_for(filters * depth, [&](int64_t md) {
    const int64_t m = md / depth, c = m / filters_per_group * depth + md % depth;
    int64_t tap = 0;
    for_each_index(w.kernel, [&](const Shape& k) {
      double sum = 0;
      for (int64_t n = 0; n < x.type.shape[0]; ++n) {
        int64_t at = (n * filters + m) * pixels;
        for_each_index(w.out, [&](const Shape& place) {
          bool beyond = false;
          const int64_t from = w.tap(place, k, beyond);
          if (from >= 0) sum += dy.number(at) * x.number((n * channels + c) * plane + from);
          ++at;
        });
      }
      out.set(md * taps + tap++, sum);
    });
  });
}

// Each place gives its gradient to the first of the largest of its window; or an equal share to all that were counted.
void pool_gradient(Op op, const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array& dy = *inputs[0];
  const WindowOfAnyAxes w = window_of(attrs, out.type, dy.type);
  const int64_t plane = element_count(w.in), pixels = element_count(w.out);
  const bool padding_counts = op == Op::AveragePoolGradient && attr_int(attrs, "count_include_pad") != 0;
  std::vector<double> sums(static_cast<size_t>(out.count()), 0);
  for (int64_t nc = 0; plane > 0 && nc < out.count() / plane; ++nc) {
    int64_t at = nc * pixels;
    for_each_index(w.out, [&](const Shape& place) {
      std::vector<int64_t> inside;
      int64_t counted = 0, best = -1;
      for_each_index(w.kernel, [&](const Shape& k) {
        bool beyond = false;
        const int64_t from = w.tap(place, k, beyond);
        if (from >= 0) inside.push_back(nc * plane + from);
        if (from >= 0 || (padding_counts && !beyond)) ++counted;
      });
      for (const int64_t i : inside) {
        if (op == Op::AveragePoolGradient)
          sums[static_cast<size_t>(i)] += dy.number(at) / static_cast<double>(counted);
        else if (best < 0 || inputs[1]->number(i) > inputs[1]->number(best))
          best = i;
      }
      if (best >= 0) sums[static_cast<size_t>(best)] += dy.number(at);
      ++at;
    });
  }
  for (int64_t i = 0; i < out.count(); ++i) out.set(i, sums[static_cast<size_t>(i)]);
}

// Indices are into the whole result.
void max_unpool(const Arrays& inputs, Array& out) {
  const int64_t last = out.count() - 1;
  for (int64_t i = 0; i < inputs[0]->count() && last >= 0; ++i)
    out.copy(std::clamp<int64_t>(inputs[1]->wholes[static_cast<size_t>(i)], 0, last), *inputs[0], i);
}

}  // namespace

// clang-format off
NLS_REFERENCE(Conv, conv(attrs, in, out))
NLS_REFERENCE(ConvTranspose, conv_transpose(attrs, in, out))
NLS_REFERENCE(MaxPool, pool(op, attrs, *in[0], out))
NLS_REFERENCE(AveragePool, pool(op, attrs, *in[0], out))
NLS_REFERENCE(LpPool, pool(op, attrs, *in[0], out))
NLS_REFERENCE(MaxPoolIndices, pool(op, attrs, *in[0], out))
NLS_REFERENCE(ConvWeightGradient, conv_weight_gradient(attrs, in, out))
NLS_REFERENCE(MaxPoolGradient, pool_gradient(op, attrs, in, out))
NLS_REFERENCE(AveragePoolGradient, pool_gradient(op, attrs, in, out))
NLS_REFERENCE(MaxUnpool, max_unpool(in, out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
