// Halves in memory as packets of floats.
#pragma once

#include <cstring>

#include "graph/half.h"
#include "kernels/module/packets.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace nlsplit::inline kernels {

template <class F>
inline Packet each_float(const uint16_t* from, const F& value_of) {
  alignas(64) float each[width];
  for (int i = 0; i < width; ++i) each[i] = value_of(from[i]);
  return load(each);
}

inline Packet load_f16(const uint16_t* from) {
#if defined(__AVX512BW__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  return each_float(from, f16_value);
#endif
}

inline Packet load_bf16(const uint16_t* from) {
#if defined(__AVX512BW__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
#elif defined(__AVX2__)
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
#else
  return each_float(from, bf16_value);
#endif
}

inline Packet load_f16_part(const uint16_t* from, int64_t count) {
  uint16_t full[width] = {};
  std::memcpy(full, from, static_cast<size_t>(count) * sizeof(uint16_t));
  return load_f16(full);
}

// Numbers of one type as they lie in memory.
struct F32InMemory {
  using Stored = float;
  static Packet read(const float* from) { return load(from); }
  static Packet read_part(const float* from, int64_t count) { return load_part(from, count); }
};
struct F16InMemory {
  using Stored = uint16_t;
  static Packet read(const uint16_t* from) { return load_f16(from); }
  static Packet read_part(const uint16_t* from, int64_t count) { return load_f16_part(from, count); }
};

}  // namespace nlsplit::inline kernels
