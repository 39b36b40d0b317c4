// float16 (IEEE 754 binary16) and bfloat16 from and to float, rounded to the nearest, ties to even: as graph/elements.h
// does it for all types, and fast.
//
//   uint16_t bits = f16_bits(1.0f);    // 0x3c00
//   float value = bf16_value(0x3f80);  // 1
#pragma once

#include <bit>
#include <cstdint>

namespace nlsplit::inline graph {

// All ways are computed and one is chosen by masks, so that loops over them become vector instructions.
inline uint32_t mask_of(bool yes) { return 0u - static_cast<uint32_t>(yes); }

inline uint16_t f16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  // 2^16 and more: infinite, or no number.
  const uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  // Below 2^-14: a float of 0.5 and more has its last bit where a subnormal half has its own.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  // A carry is the next exponent, at last infinity.
  const uint32_t usual = (size - ((127u - 15u) << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
  const uint32_t is_large = mask_of(size >= 0x47800000u), is_small = mask_of(size < 0x38800000u);
  return static_cast<uint16_t>(sign | (large & is_large) | (small & is_small) | (usual & ~(is_large | is_small)));
}

inline float f16_value(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
  // A float subnormal by the same bits, and exact: 2^112 is what the exponents' biases differ by.
  const float finite = std::bit_cast<float>(size << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(finite) | (mask_of(size >= 0x7c00u) & 0x7f800000u));
}

inline uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // stays no number
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float bf16_value(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

}  // namespace nlsplit::inline graph
