// The types of elements: in memory any of them, in registers float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {

__device__ inline float value_of(float x) { return x; }
__device__ inline float value_of(__half x) { return __half2float(x); }
__device__ inline float value_of(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounded to the nearest, ties to even.
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(__half* to, float x) { *to = __float2half_rn(x); }
__device__ inline void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

// As many elements as lie in a row of `width`, read or written at once.
template <class T, int width>
struct alignas(sizeof(T) * width) Vector {
  T at[width];
};
template <class T>
inline constexpr int full_width = 16 /
                                  static_cast<int>(sizeof(T));  // 16 bytes are the most that a thread reads at once

// Calls use with an element of the type.
template <class Use>
cudaError_t with_type(Element type, const Use& use) {
  switch (type) {
    case Element::f32:
      return use(float{});
    case Element::f16:
      return use(__half{});
    case Element::bf16:
      return use(__nv_bfloat16{});
  }
  return cudaErrorInvalidValue;
}

// What a launch is given, as its kernel takes it.
template <class T>
const T* in(const void* operand) {
  return static_cast<const T*>(operand);
}
template <class T>
T* out(void* result) {
  return static_cast<T*>(result);
}

}  // namespace nlsplit::cuda
