// Element by element: chains of functions, broadcasting, sums, batch norm, local response normalisation.
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

__device__ float apply(Function function, float x, float a, float b, float y) {
  switch (function) {
    case Function::relu:
      return at_least(x, 0.0f);
    case Function::sigmoid:
      return 1.0f / (1.0f + expf(-x));
    case Function::tanh:
      return tanhf(x);
    case Function::hard_swish:
      return x * at_most(at_least(x / 6.0f + 0.5f, 0.0f), 1.0f);
    case Function::exp:
      return expf(x);
    case Function::sqrt:
      return sqrtf(x);
    case Function::neg:
      return -x;
    case Function::erf:
      return erff(x);
    case Function::leaky_relu:
      return x < 0.0f ? x * a : x;
    case Function::hard_sigmoid:
      return at_most(at_least(x * a + b, 0.0f), 1.0f);
    case Function::clip:
      return at_most(at_least(x, a), b);
    case Function::gelu:
      return gelu_by_erf(x);
    case Function::gelu_tanh:
      return gelu_by_tanh(x);
    case Function::same:
      return x;
    case Function::scale:
      return x * a;
    case Function::add:
      return x + y;
    case Function::sub:
      return x - y;
    case Function::mul:
      return x * y;
    case Function::div:
      return x / y;
  }
  return x;
}

template <class T>
__device__ float apply_all(const Steps& steps, float x, int64_t i) {
  for (int s = 0; s < steps.count; ++s) {
    const Step& step = steps.step[s];
    const auto* operand = static_cast<const T*>(step.operand);
    x = apply(step.function, x, step.a, step.b, operand != nullptr ? value_of(operand[i]) : 0.0f);
  }
  return x;
}

// No __restrict__: the result may lie where an operand does.
template <class T>
__global__ void run_steps(const T* from, T* to, int64_t count, Steps steps) {
  for (int64_t i = first_element(); i < count; i += all_threads())
    store(to + i, apply_all<T>(steps, value_of(from[i]), i));
}

template <class T>
__global__ void run_broadcast(const T* a, const T* b, T* to, int64_t count, Function function, Walk walk, Steps steps) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    int64_t rest = i, in_a = 0, in_b = 0;
    for (int axis = walk.axes - 1; axis >= 0; --axis) {
      const int64_t at = rest % walk.extent[axis];
      rest /= walk.extent[axis];
      in_a += at * walk.stride[0][axis];
      in_b += at * walk.stride[1][axis];
    }
    store(to + i, apply_all<T>(steps, apply(function, value_of(a[in_a]), 0.0f, 0.0f, value_of(b[in_b])), i));
  }
}

template <class From, class To>
__global__ void run_cast(const From* from, To* to, int64_t count) {
  for (int64_t i = first_element(); i < count; i += all_threads()) store(to + i, value_of(from[i]));
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

cudaError_t launch_steps(Element type, const void* from, void* to, int64_t count, const Steps& steps,
                         cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_steps<T>, blocks_for(count), stream, in<T>(from), out<T>(to), count, steps);
  });
}

cudaError_t launch_broadcast(Element type, const void* a, const void* b, void* to, int64_t count, Function function,
                             const Walk& walk, const Steps& steps, cudaStream_t stream) {
  return with_type(type, [&](auto one) {
    using T = decltype(one);
    return launch(run_broadcast<T>, blocks_for(count), stream, in<T>(a), in<T>(b), out<T>(to), count, function, walk,
                  steps);
  });
}

cudaError_t launch_cast(Element from_type, const void* from, Element to_type, void* to, int64_t count,
                        cudaStream_t stream) {
  return with_type(from_type, [&](auto before) {
    using From = decltype(before);
    return with_type(to_type, [&](auto after) {
      using To = decltype(after);
      return launch(run_cast<From, To>, blocks_for(count), stream, in<From>(from), out<To>(to), count);
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
