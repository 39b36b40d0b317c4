// What the libraries' arithmetic starts and ends with: elements of a type in the GPU's memory, as floats of the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace nlsplit::emulator {

enum class Number { f32, f16, bf16 };
inline size_t size_of(Number number) { return number == Number::f32 ? 4 : 2; }

inline std::optional<Number> number_of(cudaDataType_t type) {
  if (type == CUDA_R_32F) return Number::f32;
  if (type == CUDA_R_16F) return Number::f16;
  if (type == CUDA_R_16BF) return Number::bf16;
  return std::nullopt;
}

inline float load(Number number, const void* from, int64_t i) {
  if (number == Number::f32) return static_cast<const float*>(from)[i];
  if (number == Number::f16) return __half2float(static_cast<const __half*>(from)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
}

inline void store(Number number, void* to, int64_t i, float value) {
  if (number == Number::f32) static_cast<float*>(to)[i] = value;
  if (number == Number::f16) static_cast<__half*>(to)[i] = __float2half(value);
  if (number == Number::bf16) static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(value);
}

// To the nearest with 10 bits of mantissa, as tensor cores take float32.
inline float to_tf32(float value) {
  constexpr uint32_t lost = 13;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  bits += (1u << (lost - 1)) - 1 + (bits >> lost & 1);
  return std::bit_cast<float>(bits & ~((1u << lost) - 1));
}

}  // namespace nlsplit::emulator
