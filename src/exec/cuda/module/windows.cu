// Sliding windows, one thread an output element: pooling, and the convolutions that cuDNN does not take.
#include <math_constants.h>

#include "exec/cuda/module/element.cuh"
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

// The output element a thread makes, and where its window begins.
struct Place {
  int64_t n, c, y, x, top, left;
};
__device__ Place place_of(int64_t i, const WindowShape& s) {
  Place p;
  p.x = i % s.out_w;
  p.y = i / s.out_w % s.out_h;
  p.c = i / (s.out_w * s.out_h) % s.out_channels;
  p.n = i / (s.out_w * s.out_h * s.out_channels);
  p.top = p.y * s.stride_h - s.pad_top;
  p.left = p.x * s.stride_w - s.pad_left;
  return p;
}

// visit(row, column, tap) for the taps that lie within the plane.
template <class Visit>
__device__ void over_window(const WindowShape& s, const Place& p, const Visit& visit) {
  for (int64_t i = 0; i < s.kernel_h; ++i) {
    const int64_t y = p.top + i * s.dilation_h;
    if (y < 0 || y >= s.h) continue;
    for (int64_t j = 0; j < s.kernel_w; ++j) {
      const int64_t x = p.left + j * s.dilation_w;
      if (x >= 0 && x < s.w) visit(y, x, i * s.kernel_w + j);
    }
  }
}

template <class T>
__global__ void run_conv(const T* x, const T* w, const T* bias, T* to, int64_t count, WindowShape s) {
  const int64_t in_group = s.channels / s.groups, out_group = s.out_channels / s.groups;
  const int64_t taps = s.kernel_h * s.kernel_w;
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const Place p = place_of(i, s);
    const int64_t first = p.c / out_group * in_group;
    float sum = 0;
    for (int64_t c = 0; c < in_group; ++c) {
      const T* plane = x + (p.n * s.channels + first + c) * s.h * s.w;
      const T* filter = w + (p.c * in_group + c) * taps;
      over_window(s, p, [&](int64_t y, int64_t column, int64_t tap) {
        sum += value_of(plane[y * s.w + column]) * value_of(filter[tap]);
      });
    }
    store(to + i, bias != nullptr ? sum + value_of(bias[p.c]) : sum);
  }
}

template <class T>
__global__ void run_max_pool(const T* x, T* to, int64_t count, WindowShape s) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const Place p = place_of(i, s);
    const T* plane = x + (p.n * s.channels + p.c) * s.h * s.w;
    float top = -CUDART_INF_F;
    over_window(s, p, [&](int64_t y, int64_t column, int64_t) {
      const float value = value_of(plane[y * s.w + column]);
      top = value > top || isnan(value) ? value : top;
    });
    store(to + i, top);
  }
}

// How many positions a window counts along one axis.
__device__ int64_t counted(int64_t begin, int64_t kernel, int64_t extent, int64_t before, int64_t after, bool pads) {
  const int64_t low = pads ? -before : 0, high = pads ? extent + after : extent;
  const int64_t first = begin > low ? begin : low, last = begin + kernel < high ? begin + kernel : high;
  return last > first ? last - first : 0;
}

template <class T>
__global__ void run_average_pool(const T* x, T* to, int64_t count, WindowShape s, bool pads) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const Place p = place_of(i, s);
    const T* plane = x + (p.n * s.channels + p.c) * s.h * s.w;
    float sum = 0;
    over_window(s, p, [&](int64_t y, int64_t column, int64_t) { sum += value_of(plane[y * s.w + column]); });
    const int64_t positions = counted(p.top, s.kernel_h, s.h, s.pad_top, s.pad_bottom, pads) *
                              counted(p.left, s.kernel_w, s.w, s.pad_left, s.pad_right, pads);
    store(to + i, sum / static_cast<float>(positions));
  }
}

int64_t elements(const WindowShape& s) { return s.batch * s.out_channels * s.out_h * s.out_w; }

}  // namespace

cudaError_t launch_conv(Element type, const void* x, const void* w, const void* bias, void* to,
                        const WindowShape& shape, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_conv<T>, blocks_for(elements(shape)), stream, in<T>(x), in<T>(w), in<T>(bias), out<T>(to),
                  elements(shape), shape);
  });
}

cudaError_t launch_max_pool(Element type, const void* x, void* to, const WindowShape& shape, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_max_pool<T>, blocks_for(elements(shape)), stream, in<T>(x), out<T>(to), elements(shape), shape);
  });
}

cudaError_t launch_average_pool(Element type, const void* x, void* to, const WindowShape& shape, bool count_pads,
                                cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_average_pool<T>, blocks_for(elements(shape)), stream, in<T>(x), out<T>(to), elements(shape),
                  shape, count_pads);
  });
}

}  // namespace nlsplit::cuda
