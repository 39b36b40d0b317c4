// Sliding windows, one thread an output element: pooling, and the convolutions that cuDNN does not take.
#include <math_constants.h>

#include "exec/cuda/module/element.cuh"
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

// The output element a thread makes, and where its window begins.
template <class Index>
struct Place {
  Index n, c, y, x, top, left;
};
template <class Index>
__device__ Place<Index> place_of(Index i, const WindowShapeBy<Index>& s) {
  Place<Index> p;
  const Index row = i / s.out_w, plane = row / s.out_h;
  p.x = i - row * s.out_w;
  p.y = row - plane * s.out_h;
  p.n = plane / s.out_channels;
  p.c = plane - p.n * s.out_channels;
  p.top = p.y * s.stride_h - s.pad_top;
  p.left = p.x * s.stride_w - s.pad_left;
  return p;
}

// visit(row, column, tap) for the taps that lie within the plane.
template <class Index, class Visit>
__device__ void over_window(const WindowShapeBy<Index>& s, const Place<Index>& p, const Visit& visit) {
  for (Index i = 0; i < s.kernel_h; ++i) {
    const Index y = p.top + i * s.dilation_h;
    if (y < 0 || y >= s.h) continue;
    for (Index j = 0; j < s.kernel_w; ++j) {
      const Index x = p.left + j * s.dilation_w;
      if (x >= 0 && x < s.w) visit(y, x, i * s.kernel_w + j);
    }
  }
}

template <class T>
__global__ void run_conv(const T* x, const T* w, const T* bias, T* to, int64_t count, WindowShape s) {
  const int64_t in_group = s.channels / s.groups, out_group = s.out_channels / s.groups;
  const int64_t taps = s.kernel_h * s.kernel_w;
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const Place<int64_t> p = place_of(i, s);
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

template <class T, class Index>
__global__ void run_max_pool(const T* x, T* to, Index count, WindowShapeBy<Index> s) {
  for (Index i = static_cast<Index>(first_element()); i < count; i += static_cast<Index>(all_threads())) {
    const Place<Index> p = place_of(i, s);
    const T* plane = x + (p.n * s.channels + p.c) * s.h * s.w;
    float top = -CUDART_INF_F;
    over_window(s, p, [&](Index y, Index column, Index) {
      const float value = value_of(plane[y * s.w + column]);
      top = value > top || isnan(value) ? value : top;
    });
    store(to + i, top);
  }
}

// How many positions a window counts along one axis.
template <class Index>
__device__ Index counted(Index begin, Index kernel, Index extent, Index before, Index after, bool pads) {
  const Index low = pads ? -before : 0, high = pads ? extent + after : extent;
  const Index first = begin > low ? begin : low, last = begin + kernel < high ? begin + kernel : high;
  return last > first ? last - first : 0;
}

template <class T, class Index>
__global__ void run_average_pool(const T* x, T* to, Index count, WindowShapeBy<Index> s, bool pads) {
  for (Index i = static_cast<Index>(first_element()); i < count; i += static_cast<Index>(all_threads())) {
    const Place<Index> p = place_of(i, s);
    const T* plane = x + (p.n * s.channels + p.c) * s.h * s.w;
    float sum = 0;
    over_window(s, p, [&](Index y, Index column, Index) { sum += value_of(plane[y * s.w + column]); });
    const Index positions = counted(p.top, s.kernel_h, s.h, s.pad_top, s.pad_bottom, pads) *
                            counted(p.left, s.kernel_w, s.w, s.pad_left, s.pad_right, pads);
    store(to + i, sum / static_cast<float>(positions));
  }
}

int64_t elements(const WindowShape& s) { return s.batch * s.out_channels * s.out_h * s.out_w; }

// Divisions of 64 bits take longer than a small window: 32 bits where they count all elements and what lies in pads.
bool fits_32_bits(const WindowShape& s) {
  constexpr int64_t most = int64_t{1} << 30;
  const int64_t padded = (s.h + s.pad_top + s.pad_bottom) * (s.w + s.pad_left + s.pad_right);
  return elements(s) <= most && s.batch * s.channels <= most / (padded > 0 ? padded : 1);
}
WindowShapeBy<int32_t> narrow(const WindowShape& s) {
  const auto to = [](int64_t value) { return static_cast<int32_t>(value); };
  return {to(s.batch),      to(s.channels), to(s.h),        to(s.w),          to(s.out_channels), to(s.out_h),
          to(s.out_w),      to(s.kernel_h), to(s.kernel_w), to(s.stride_h),   to(s.stride_w),     to(s.dilation_h),
          to(s.dilation_w), to(s.pad_top),  to(s.pad_left), to(s.pad_bottom), to(s.pad_right),    to(s.groups)};
}

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
    const int64_t count = elements(shape);
    return fits_32_bits(shape)
               ? launch(run_max_pool<T, int32_t>, blocks_for(count), stream, in<T>(x), out<T>(to),
                        static_cast<int32_t>(count), narrow(shape))
               : launch(run_max_pool<T, int64_t>, blocks_for(count), stream, in<T>(x), out<T>(to), count, shape);
  });
}

cudaError_t launch_average_pool(Element type, const void* x, void* to, const WindowShape& shape, bool count_pads,
                                cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    const int64_t count = elements(shape);
    return fits_32_bits(shape) ? launch(run_average_pool<T, int32_t>, blocks_for(count), stream, in<T>(x), out<T>(to),
                                        static_cast<int32_t>(count), narrow(shape), count_pads)
                               : launch(run_average_pool<T, int64_t>, blocks_for(count), stream, in<T>(x), out<T>(to),
                                        count, shape, count_pads);
  });
}

}  // namespace nlsplit::cuda
