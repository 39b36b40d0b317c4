// Ops on [N, C, H, W]: convolution, pooling, normalisation by channel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference/loops.h"

namespace nlsplit::inline graph::reference {
namespace {

struct Image {
  int64_t n, c, h, w;
};

Image image_of(const Tensor& tensor) {
  const Shape& s = tensor.type.shape;
  CHECK(s.size() == 4, "two spatial axes");
  return {s[0], s[1], s[2], s[3]};
}

struct Window {
  int64_t kh, kw;                    // kernel
  int64_t sh, sw;                    // stride
  int64_t top, left, bottom, right;  // padding
  int64_t dh, dw;                    // dilation
};

Window window_of(const Attrs& attrs, bool dilated) {
  const auto& kernel = attr_ints(attrs, "kernel_shape");
  const auto& strides = attr_ints(attrs, "strides");
  const auto& pads = attr_ints(attrs, "pads");
  const std::vector<int64_t> dilations = dilated ? attr_ints(attrs, "dilations") : std::vector<int64_t>{1, 1};
  return {kernel[0], kernel[1], strides[0], strides[1], pads[0], pads[1], pads[2], pads[3], dilations[0], dilations[1]};
}

// One sample with its zero border, in double, so that the loops below need no bounds.
std::vector<double> padded_sample(const Tensor& x, int64_t n, const Window& win) {
  const Image in = image_of(x);
  const int64_t rows = in.h + win.top + win.bottom, columns = in.w + win.left + win.right;
  std::vector<double> padded(static_cast<size_t>(in.c * rows * columns), 0.0);
  for (int64_t c = 0; c < in.c; ++c) {
    for (int64_t h = 0; h < in.h; ++h) {
      const float* from = x.values.data() + ((n * in.c + c) * in.h + h) * in.w;
      std::copy(from, from + in.w, padded.data() + (c * rows + h + win.top) * columns + win.left);
    }
  }
  return padded;
}

// Calls visit(plane, oh, ow, position) for every output element of a pooling; a plane is one channel of one sample.
template <class Visit>
void for_each_output(const Image& o, Visit visit) {
  parallel_for(o.n * o.c, [&](int64_t plane) {
    for (int64_t oh = 0; oh < o.h; ++oh) {
      for (int64_t ow = 0; ow < o.w; ++ow) visit(plane, oh, ow, (plane * o.h + oh) * o.w + ow);
    }
  });
}

}  // namespace

void conv(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Tensor& x = *inputs[0];
  const Tensor& weights = *inputs[1];
  const Tensor* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const Window win = window_of(attrs, true);
  const Image in = image_of(x), o = image_of(out), w = image_of(weights);  // w: [M, C/group, kh, kw]
  const int64_t channels_per_group = o.c / attr_int(attrs, "group");
  const int64_t rows = in.h + win.top + win.bottom, columns = in.w + win.left + win.right;

  for (int64_t n = 0; n < o.n; ++n) {
    const std::vector<double> padded = padded_sample(x, n, win);
    parallel_for(o.c, [&](int64_t m) {
      const int64_t first_channel = m / channels_per_group * w.c;
      std::vector<double> sums(static_cast<size_t>(o.w));
      for (int64_t oh = 0; oh < o.h; ++oh) {
        std::fill(sums.begin(), sums.end(), bias ? bias->values[m] : 0.0);
        for (int64_t c = 0; c < w.c; ++c) {
          for (int64_t kh = 0; kh < w.h; ++kh) {
            const double* line = padded.data() + ((first_channel + c) * rows + oh * win.sh + kh * win.dh) * columns;
            for (int64_t kw = 0; kw < w.w; ++kw) {
              const double weight = weights.values[((m * w.c + c) * w.h + kh) * w.w + kw];
              const double* from = line + kw * win.dw;
              if (win.sw == 1) {  // apart, so that the compiler can use vector instructions
                for (int64_t ow = 0; ow < o.w; ++ow) sums[ow] += weight * from[ow];
              } else {
                for (int64_t ow = 0; ow < o.w; ++ow) sums[ow] += weight * from[ow * win.sw];
              }
            }
          }
        }
        float* to = out.values.data() + ((n * o.c + m) * o.h + oh) * o.w;
        for (int64_t ow = 0; ow < o.w; ++ow) to[ow] = static_cast<float>(sums[ow]);
      }
    });
  }
}

// Every input element, times a filter, is added to the window of the output it would be computed from.
void conv_transpose(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Tensor& x = *inputs[0];
  const Tensor& weights = *inputs[1];
  const Tensor* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const Window win = window_of(attrs, true);
  const Image in = image_of(x), o = image_of(out), w = image_of(weights);  // w: [C, M/group, kh, kw]
  const int64_t channels_per_group = in.c / attr_int(attrs, "group");
  parallel_for(o.n * o.c, [&](int64_t plane) {
    const int64_t n = plane / o.c, m = plane % o.c;
    std::vector<double> sums(static_cast<size_t>(o.h * o.w), bias ? bias->values[m] : 0.0);
    for (int64_t i = 0; i < channels_per_group; ++i) {
      const int64_t c = m / w.c * channels_per_group + i;
      for (int64_t h = 0; h < in.h; ++h) {
        for (int64_t v = 0; v < in.w; ++v) {
          const double value = x.values[((n * in.c + c) * in.h + h) * in.w + v];
          for (int64_t kh = 0; kh < w.h; ++kh) {
            const int64_t oh = h * win.sh + kh * win.dh - win.top;
            for (int64_t kw = 0; kw < w.w; ++kw) {
              const int64_t ow = v * win.sw + kw * win.dw - win.left;
              if (oh < 0 || oh >= o.h || ow < 0 || ow >= o.w) continue;
              sums[oh * o.w + ow] += value * weights.values[((c * w.c + m % w.c) * w.h + kh) * w.w + kw];
            }
          }
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) out.values[plane * o.h * o.w + i] = static_cast<float>(sums[i]);
  });
}

void max_pool(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Window win = window_of(attrs, true);
  const Image in = image_of(*inputs[0]);
  for_each_output(image_of(out), [&](int64_t plane, int64_t oh, int64_t ow, int64_t at) {
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t kh = 0; kh < win.kh; ++kh) {
      const int64_t h = oh * win.sh - win.top + kh * win.dh;
      for (int64_t kw = 0; kw < win.kw; ++kw) {
        const int64_t w = ow * win.sw - win.left + kw * win.dw;
        if (h < 0 || h >= in.h || w < 0 || w >= in.w) continue;
        best = std::max(best, inputs[0]->values[(plane * in.h + h) * in.w + w]);
      }
    }
    out.values[at] = best;
  });
}

void average_pool(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Window win = window_of(attrs, false);
  const bool count_padding = attr_int(attrs, "count_include_pad") != 0;
  const Image in = image_of(*inputs[0]);
  for_each_output(image_of(out), [&](int64_t plane, int64_t oh, int64_t ow, int64_t at) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t kh = 0; kh < win.kh; ++kh) {
      const int64_t h = oh * win.sh - win.top + kh;
      for (int64_t kw = 0; kw < win.kw; ++kw) {
        const int64_t w = ow * win.sw - win.left + kw;
        if (h >= 0 && h < in.h && w >= 0 && w < in.w) {
          sum += inputs[0]->values[(plane * in.h + h) * in.w + w];
          ++count;
        } else if (count_padding && h < in.h + win.bottom && w < in.w + win.right) {
          ++count;  // padding, but not what lies behind it in ceil_mode
        }
      }
    }
    out.values[at] = static_cast<float>(sum / static_cast<double>(count));
  });
}

void global_average_pool(const Inputs& inputs, Tensor& out) {
  const int64_t planes = inputs[0]->type.shape[0] * inputs[0]->type.shape[1];
  const int64_t extent = planes == 0 ? 0 : static_cast<int64_t>(inputs[0]->values.size()) / planes;
  for (int64_t p = 0; p < planes; ++p) {
    double sum = 0;
    for (int64_t i = 0; i < extent; ++i) sum += inputs[0]->values[p * extent + i];
    out.values[p] = static_cast<float>(sum / static_cast<double>(extent));
  }
}

void batch_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Shape& shape = out.type.shape;
  const double epsilon = attr_float(attrs, "epsilon");
  const int64_t channels = shape[1];
  // At least 1: an empty tensor has no element to divide for.
  const int64_t samples = std::max<int64_t>(1, shape[0]) * std::max<int64_t>(1, channels);
  const int64_t inner = std::max<int64_t>(1, element_count(shape) / samples);
  for (int64_t at = 0; at < static_cast<int64_t>(out.values.size()); ++at) {
    const int64_t c = at / inner % channels;
    const double scale = inputs[1]->values[c], bias = inputs[2]->values[c], mean = inputs[3]->values[c],
                 var = inputs[4]->values[c];
    out.values[at] = static_cast<float>((inputs[0]->values[at] - mean) * scale / std::sqrt(var + epsilon) + bias);
  }
}

namespace {

// Rows of `size` elements to mean 0 and variance 1 (of the population, as ONNX has it), then element i of row r scaled
// and shifted as scale(r, i) and shift(r, i) say.
template <class Scale, class Shift>
void normalize_rows(const Tensor& x, int64_t size, double epsilon, Tensor& out, Scale scale, Shift shift) {
  if (out.values.empty()) return;
  parallel_for(static_cast<int64_t>(out.values.size()) / size, [&](int64_t row) {
    const float* from = x.values.data() + row * size;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < size; ++i) mean += from[i];
    mean /= static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (int64_t i = 0; i < size; ++i) {
      out.values[row * size + i] = static_cast<float>((from[i] - mean) / deviation * scale(row, i) + shift(row, i));
    }
  });
}

}  // namespace

void layer_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const std::vector<float>& scale = inputs[1]->values;
  const Tensor* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  normalize_rows(
      *inputs[0], static_cast<int64_t>(scale.size()), attr_float(attrs, "epsilon"), out,
      [&](int64_t, int64_t i) { return scale[i]; }, [&](int64_t, int64_t i) { return bias ? bias->values[i] : 0.0f; });
}

void instance_normalization(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const Shape& shape = out.type.shape;
  const int64_t channels = shape[1];
  const int64_t inner = element_count(Shape(shape.begin() + 2, shape.end()));
  normalize_rows(
      *inputs[0], inner, attr_float(attrs, "epsilon"), out,
      [&](int64_t row, int64_t) { return inputs[1]->values[row % channels]; },
      [&](int64_t row, int64_t) { return inputs[2]->values[row % channels]; });
}

void lrn(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const double alpha = attr_float(attrs, "alpha"), beta = attr_float(attrs, "beta"), bias = attr_float(attrs, "bias");
  const int64_t size = attr_int(attrs, "size");
  const Shape& shape = out.type.shape;
  const int64_t channels = shape[1];
  // At least 1: an empty tensor has no element to divide for.
  const int64_t samples = std::max<int64_t>(1, shape[0]) * std::max<int64_t>(1, channels);
  const int64_t inner = std::max<int64_t>(1, element_count(shape) / samples);
  parallel_for(shape[0] * channels, [&](int64_t plane) {
    const int64_t n = plane / channels, c = plane % channels;
    const int64_t first = std::max<int64_t>(0, c - (size - 1) / 2), last = std::min(channels - 1, c + size / 2);
    for (int64_t i = 0; i < inner; ++i) {
      double squares = 0;
      for (int64_t k = first; k <= last; ++k) {
        const double v = inputs[0]->values[(n * channels + k) * inner + i];
        squares += v * v;
      }
      const double divisor = std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
      out.values[plane * inner + i] = static_cast<float>(inputs[0]->values[plane * inner + i] / divisor);
    }
  });
}

}  // namespace nlsplit::inline graph::reference
