// A block of q8_0 (graph/graph.h) from 32 floats: its scale, and each number as a whole step of it. All who make such
// blocks make these.
//
//   uint16_t scale = q8_0_scale(2.54f);                   // 0.02 as float16 has it
//   int8_t step = q8_0_step(-1.0f, f16_value(scale));     // -50
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "graph/half.h"

namespace nlsplit::inline graph {

inline constexpr float q8_0_most_steps = 127;

// In float16. largest: the largest magnitude of the 32, NaN if there is one; it is the last step. No number if the
// largest is none, or is so large that float16 has no scale for it. 0 if it is below half of float16's least one.
inline uint16_t q8_0_scale(float largest) {
  constexpr uint16_t exponent = 0x7c00, no_number = 0x7e00;
  const uint16_t bits = f16_bits(largest / q8_0_most_steps);
  return (bits & exponent) == exponent ? no_number : bits;
}

// The nearest one, ties to even. Where the scale is 0 or no number all are 0.
inline int8_t q8_0_step(float value, float scale) {
  if (!(scale > 0)) return 0;
  return static_cast<int8_t>(std::nearbyint(std::clamp(value / scale, -q8_0_most_steps, q8_0_most_steps)));
}

}  // namespace nlsplit::inline graph
