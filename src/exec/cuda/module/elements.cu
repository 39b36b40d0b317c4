// Element by element: chains of functions, broadcasting, sums, batch norm, local response normalisation.
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "exec/cuda/module/element.cuh"
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

__device__ float gelu_by_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f)); }
__device__ float gelu_by_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}
// A NaN stays one, as in the CPU's kernels.
__device__ float at_least(float x, float low) { return x < low ? low : x; }
__device__ float at_most(float x, float high) { return x > high ? high : x; }

// x[i] = function(x[i], y[i]). The function is the same for all threads: one jump for all elements of a vector.
template <int width, class F>
__device__ void each(float (&x)[width], const float (&y)[width], const F& function) {
#pragma unroll
  for (int i = 0; i < width; ++i) x[i] = function(x[i], y[i]);
}

template <int width>
__device__ void apply(Function function, float (&x)[width], float a, float b, const float (&y)[width]) {
  switch (function) {
    case Function::relu:
      return each(x, y, [](float v, float) { return at_least(v, 0.0f); });
    case Function::sigmoid:
      return each(x, y, [](float v, float) { return 1.0f / (1.0f + expf(-v)); });
    case Function::tanh:
      return each(x, y, [](float v, float) { return tanhf(v); });
    case Function::hard_swish:
      return each(x, y, [](float v, float) { return v * at_most(at_least(v / 6.0f + 0.5f, 0.0f), 1.0f); });
    case Function::exp:
      return each(x, y, [](float v, float) { return expf(v); });
    case Function::sqrt:
      return each(x, y, [](float v, float) { return sqrtf(v); });
    case Function::neg:
      return each(x, y, [](float v, float) { return -v; });
    case Function::erf:
      return each(x, y, [](float v, float) { return erff(v); });
    case Function::leaky_relu:
      return each(x, y, [a](float v, float) { return v < 0.0f ? v * a : v; });
    case Function::hard_sigmoid:
      return each(x, y, [a, b](float v, float) { return at_most(at_least(v * a + b, 0.0f), 1.0f); });
    case Function::clip:
      return each(x, y, [a, b](float v, float) { return at_most(at_least(v, a), b); });
    case Function::gelu:
      return each(x, y, [](float v, float) { return gelu_by_erf(v); });
    case Function::gelu_tanh:
      return each(x, y, [](float v, float) { return gelu_by_tanh(v); });
    case Function::same:
      return;
    case Function::scale:
      return each(x, y, [a](float v, float) { return v * a; });
    case Function::add:
      return each(x, y, [](float v, float w) { return v + w; });
    case Function::sub:
      return each(x, y, [](float v, float w) { return v - w; });
    case Function::mul:
      return each(x, y, [](float v, float w) { return v * w; });
    case Function::div:
      return each(x, y, [](float v, float w) { return v / w; });
  }
}

// Elements i … of `from`, which begin at a multiple of the vector's size.
template <class T, int width, class Index>
__device__ void load(const T* from, Index i, float (&x)[width]) {
  const auto vector = *reinterpret_cast<const Vector<T, width>*>(from + i);
#pragma unroll
  for (int e = 0; e < width; ++e) x[e] = value_of(vector.at[e]);
}
template <class T, int width, class Index>
__device__ void store_all(T* to, Index i, const float (&x)[width]) {
  Vector<T, width> vector;
#pragma unroll
  for (int e = 0; e < width; ++e) store(&vector.at[e], x[e]);
  *reinterpret_cast<Vector<T, width>*>(to + i) = vector;
}

template <class T, int width, class Index>
__device__ void apply_all(const Steps& steps, float (&x)[width], Index i) {
  for (int s = 0; s < steps.count; ++s) {
    const Step& step = steps.step[s];
    float y[width] = {};
    if (step.operand != nullptr) load(static_cast<const T*>(step.operand), i, y);
    apply(step.function, x, step.a, step.b, y);
  }
}

// A thread makes `width` neighbouring elements at a time. No __restrict__: the result may lie where an operand does.
template <class T, int width>
__global__ void run_steps(const T* from, T* to, int64_t count, Steps steps) {
  for (int64_t i = first_element() * width; i < count; i += all_threads() * width) {
    float x[width];
    load(from, i, x);
    apply_all<T>(steps, x, i);
    store_all(to, i, x);
  }
}

// Divisions of 64 bits take longer than what they are for here: Index is 32 bits where that counts all elements.
template <class T, int width, class Index>
__global__ void run_planes(const T* a, const T* b, T* to, Index count, Function function, Index channels, Index inner,
                           Steps steps) {
  for (Index i = static_cast<Index>(first_element()) * width; i < count;
       i += static_cast<Index>(all_threads()) * width) {
    Index plane = i / inner, within = i - plane * inner, channel = plane % channels;
    float x[width], y[width];
    load(a, i, x);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      y[e] = value_of(b[channel]);
      if (++within < inner) continue;
      within = 0;
      if (++channel == channels) channel = 0;
    }
    apply(function, x, 0.0f, 0.0f, y);
    apply_all<T>(steps, x, i);
    store_all(to, i, x);
  }
}

template <class T, class Index>
__global__ void run_broadcast(const T* a, const T* b, T* to, Index count, Function function, Walk walk, Steps steps) {
  for (Index i = static_cast<Index>(first_element()); i < count; i += static_cast<Index>(all_threads())) {
    Index rest = i, in_a = 0, in_b = 0;
    for (int axis = walk.axes - 1; axis >= 0; --axis) {
      const auto extent = static_cast<Index>(walk.extent[axis]);
      const Index before = rest / extent, at = rest - before * extent;
      rest = before;
      in_a += at * static_cast<Index>(walk.stride[0][axis]);
      in_b += at * static_cast<Index>(walk.stride[1][axis]);
    }
    float x[1] = {value_of(a[in_a])};
    const float y[1] = {value_of(b[in_b])};
    apply(function, x, 0.0f, 0.0f, y);
    apply_all<T>(steps, x, i);
    store(to + i, x[0]);
  }
}

template <class From, class To, int width>
__global__ void run_cast(const From* from, To* to, int64_t count) {
  for (int64_t i = first_element() * width; i < count; i += all_threads() * width) {
    float x[width];
    load(from, i, x);
    store_all(to, i, x);
  }
}

template <class T>
__global__ void run_terms(T* sum, Terms terms, int64_t count) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    float total = value_of(static_cast<const T*>(terms.term[0])[i]);
    for (int t = 1; t < terms.count; ++t) total += value_of(static_cast<const T*>(terms.term[t])[i]);
    store(sum + i, total);
  }
}

template <class T>
__global__ void run_batch_norm(const T* x, const T* scale, const T* bias, const T* mean, const T* variance, T* to,
                               int64_t count, int64_t channels, int64_t inner, double epsilon) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const int64_t c = i / inner % channels;
    const double spread = sqrt(static_cast<double>(value_of(variance[c])) + epsilon);
    const auto factor = static_cast<float>(value_of(scale[c]) / spread);
    store(to + i, (value_of(x[i]) - value_of(mean[c])) * factor + value_of(bias[c]));
  }
}

template <class T>
__global__ void run_lrn(const T* x, T* to, int64_t count, int64_t channels, int64_t inner, int64_t size, float slope,
                        float bias, float beta) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    const int64_t c = i / inner % channels;
    const int64_t low = c - (size - 1) / 2, high = c + size / 2;
    const int64_t first = low > 0 ? low : 0, last = high < channels - 1 ? high : channels - 1;
    float squares = 0;
    for (int64_t other = first; other <= last; ++other) {
      const float value = value_of(x[i + (other - c) * inner]);
      squares += value * value;
    }
    store(to + i, value_of(x[i]) * powf(bias + slope * squares, -beta));
  }
}

}  // namespace

namespace {

// Do vectors of the type fit: do all begin at a multiple of 16 bytes, and does nothing remain?
template <class T>
bool fits_vectors(int64_t count, std::initializer_list<const void*> operands, const Steps& steps) {
  const auto is_aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  for (int s = 0; s < steps.count; ++s) {
    if (!is_aligned(steps.step[s].operand)) return false;
  }
  return count % full_width<T> == 0 && std::all_of(operands.begin(), operands.end(), is_aligned);
}

// The threads of a grid step over all elements: the index behind the last one must not overflow either.
bool fits_32_bits(int64_t count) { return count <= int64_t{1} << 30; }

}  // namespace

cudaError_t launch_steps(Element type, const void* from, void* to, int64_t count, const Steps& steps,
                         cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    constexpr int width = full_width<T>;
    return fits_vectors<T>(count, {from, to}, steps)
               ? launch(run_steps<T, width>, blocks_for(count / width), stream, in<T>(from), out<T>(to), count, steps)
               : launch(run_steps<T, 1>, blocks_for(count), stream, in<T>(from), out<T>(to), count, steps);
  });
}

cudaError_t launch_planes(Element type, const void* a, const void* b, void* to, int64_t count, Function function,
                          int64_t channels, int64_t inner, const Steps& steps, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    constexpr int width = full_width<T>;
    if (!fits_32_bits(count)) {
      return launch(run_planes<T, 1, int64_t>, blocks_for(count), stream, in<T>(a), in<T>(b), out<T>(to), count,
                    function, channels, inner, steps);
    }
    const auto narrow = [](int64_t value) { return static_cast<uint32_t>(value); };
    return fits_vectors<T>(count, {a, to}, steps)
               ? launch(run_planes<T, width, uint32_t>, blocks_for(count / width), stream, in<T>(a), in<T>(b),
                        out<T>(to), narrow(count), function, narrow(channels), narrow(inner), steps)
               : launch(run_planes<T, 1, uint32_t>, blocks_for(count), stream, in<T>(a), in<T>(b), out<T>(to),
                        narrow(count), function, narrow(channels), narrow(inner), steps);
  });
}

cudaError_t launch_broadcast(Element type, const void* a, const void* b, void* to, int64_t count, Function function,
                             const Walk& walk, const Steps& steps, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return fits_32_bits(count) ? launch(run_broadcast<T, uint32_t>, blocks_for(count), stream, in<T>(a), in<T>(b),
                                        out<T>(to), static_cast<uint32_t>(count), function, walk, steps)
                               : launch(run_broadcast<T, int64_t>, blocks_for(count), stream, in<T>(a), in<T>(b),
                                        out<T>(to), count, function, walk, steps);
  });
}

cudaError_t launch_cast(Element from_type, const void* from, Element to_type, void* to, int64_t count,
                        cudaStream_t stream) {
  return with_type(from_type, [&](auto before) {
    using From = decltype(before);
    return with_type(to_type, [&](auto after) {
      using To = decltype(after);
      constexpr int width = full_width<std::conditional_t<sizeof(From) < sizeof(To), To, From>>;
      return fits_vectors<std::conditional_t<sizeof(From) < sizeof(To), To, From>>(count, {from, to}, {})
                 ? launch(run_cast<From, To, width>, blocks_for(count / width), stream, in<From>(from), out<To>(to),
                          count)
                 : launch(run_cast<From, To, 1>, blocks_for(count), stream, in<From>(from), out<To>(to), count);
    });
  });
}

cudaError_t launch_terms(Element type, void* sum, const Terms& terms, int64_t count, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_terms<T>, blocks_for(count), stream, out<T>(sum), terms, count);
  });
}

cudaError_t launch_batch_norm(Element type, const void* x, const void* scale, const void* bias, const void* mean,
                              const void* variance, void* to, int64_t outer, int64_t channels, int64_t inner,
                              double epsilon, cudaStream_t stream) {
  const int64_t count = outer * channels * inner;
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_batch_norm<T>, blocks_for(count), stream, in<T>(x), in<T>(scale), in<T>(bias), in<T>(mean),
                  in<T>(variance), out<T>(to), count, channels, inner, epsilon);
  });
}

cudaError_t launch_lrn(Element type, const void* x, void* to, int64_t outer, int64_t channels, int64_t inner,
                       int64_t size, float slope, float bias, float beta, cudaStream_t stream) {
  const int64_t count = outer * channels * inner;
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_lrn<T>, blocks_for(count), stream, in<T>(x), out<T>(to), count, channels, inner, size, slope,
                  bias, beta);
  });
}

}  // namespace nlsplit::cuda
