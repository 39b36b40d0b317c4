// Ops of f32 on [N, C, H, W]: convolution and pooling.
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

}  // namespace nlsplit::inline graph::reference
