// Vectors of whole numbers for weights whose elements share scales. A vector has `blocks_at_once` blocks of 32
// elements: a lane of 16 bytes is the first, or the second, half of a block, so that the four sums of a lane have one
// scale.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "graph/half.h"
#include "kernels/module/packets.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace nlsplit::inline kernels {

inline constexpr int blocks_at_once = linear_blocks_at_once(level);
static_assert(blocks_at_once * 4 == width, "four sums a block");
inline constexpr int lane_bytes = 16;

#if defined(__AVX512BW__)

using Steps = __m512i;  // bytes
using Sums = __m512i;   // 32-bit integers

// Of 16 bytes each; pointer_of(i) for lane i.
template <class F>
inline Steps load_lanes(const F& pointer_of) {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(pointer_of(lane))); };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(at(2)), at(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
inline Steps load_steps(const int8_t* from) { return _mm512_loadu_si512(from); }
inline Sums load_sums(const int32_t* from) { return _mm512_loadu_si512(from); }
inline Steps every(uint8_t value) { return _mm512_set1_epi8(static_cast<char>(value)); }
inline Steps both(Steps a, Steps b) { return _mm512_and_si512(a, b); }
inline Steps either(Steps a, Steps b) { return _mm512_or_si512(a, b); }
inline Steps flip(Steps a, Steps b) { return _mm512_xor_si512(a, b); }
// Of whole lanes, bits from byte to byte: who calls masks them. count_of(i) for lane i.
template <class F>
inline Steps shift_right(Steps a, const F& count_of) {
  return _mm512_srlv_epi64(a, _mm512_set_epi64(count_of(3), count_of(3), count_of(2), count_of(2), count_of(1),
                                               count_of(1), count_of(0), count_of(0)));
}
template <class F>
inline Steps shift_left(Steps a, const F& count_of) {
  return _mm512_sllv_epi64(a, _mm512_set_epi64(count_of(3), count_of(3), count_of(2), count_of(2), count_of(1),
                                               count_of(1), count_of(0), count_of(0)));
}
// `value` in the bytes whose bit is set; bits_of(i): those of lane i.
template <class F>
inline Steps where_bits(const F& bits_of, uint8_t value) {
  const uint64_t bits =
      uint64_t{bits_of(0)} | uint64_t{bits_of(1)} << 16 | uint64_t{bits_of(2)} << 32 | uint64_t{bits_of(3)} << 48;
  return _mm512_maskz_set1_epi8(bits, static_cast<char>(value));
}
inline Sums add_sums(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
inline Packet to_floats(Sums a) { return _mm512_cvtepi32_ps(a); }

// The sums of each lane's four, of four vectors side by side.
inline Sums sums_of_lanes_of(Sums a, Sums b, Sums c, Sums d) {
  const Sums ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const Sums cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
// The first float of each lane of a, the second one of b, and so on.
inline Packet one_of_each(const Packet& a, const Packet& b, const Packet& c, const Packet& d) {
  return _mm512_mask_mov_ps(_mm512_mask_mov_ps(a, 0x2222, b), 0xcccc, _mm512_mask_mov_ps(c, 0x8888, d));
}

inline Sums add_products(Sums sums, Steps unsigned_steps, Steps steps) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(unsigned_steps), "v"(steps));
  return sums;
}
// Sums of two products may reach 2 * 128 * 127.
inline Sums products(Steps unsigned_steps, Steps steps) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(unsigned_steps, steps), _mm512_set1_epi16(1));
}
inline Sums signed_products(Steps a, Steps b) {
  const Steps turned = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b);
  return products(_mm512_abs_epi8(a), turned);
}

// The half at `offset` of each of four blocks, one behind the other, in all four floats of its lane: words of one load,
// or of two. No byte outside of the blocks is read.
template <int64_t bytes, int64_t offset>
inline Packet halves_of_blocks(const char* from) {
  constexpr int64_t second = std::min<int64_t>(64, 4 * bytes - 64);
  static constexpr std::array<uint16_t, 32> words = [] {
    std::array<uint16_t, 32> all{};
    for (size_t i = 0; i < 16; ++i) {
      const int64_t byte = static_cast<int64_t>(i / 4) * bytes + offset;
      all[i] = static_cast<uint16_t>(byte < 64 ? byte / 2 : 32 + (byte - second) / 2);
    }
    return all;
  }();
  const __m512i places = _mm512_loadu_si512(words.data()), low = _mm512_loadu_si512(from);
  const auto widened = [](__m512i halves) { return _mm512_cvtph_ps(_mm512_castsi512_si256(halves)); };
  if constexpr (3 * bytes + offset < 64) return widened(_mm512_permutexvar_epi16(places, low));
  return widened(_mm512_permutex2var_epi16(low, places, _mm512_loadu_si512(from + second)));
}
inline Packet half_everywhere(const char* from) {
  short bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}
// Of eight signed bytes number `first` and every `stride`th behind it as floats, four times each.
template <int first, int stride>
inline Packet bytes_of_lanes(uint64_t all) {
  constexpr char a = first, b = first + stride, c = first + 2 * stride, d = first + 3 * stride;
  const __m128i lanes = _mm_setr_epi8(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
  const __m128i bytes = _mm_shuffle_epi8(_mm_cvtsi64_si128(static_cast<int64_t>(all)), lanes);
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
#elif defined(__AVX2__)

using Steps = __m256i;
using Sums = __m256i;

template <class F>
inline Steps load_lanes(const F& pointer_of) {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(pointer_of(lane))); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(1), 1);
}
inline Steps load_steps(const int8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline Sums load_sums(const int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline Steps every(uint8_t value) { return _mm256_set1_epi8(static_cast<char>(value)); }
inline Steps both(Steps a, Steps b) { return _mm256_and_si256(a, b); }
inline Steps either(Steps a, Steps b) { return _mm256_or_si256(a, b); }
inline Steps flip(Steps a, Steps b) { return _mm256_xor_si256(a, b); }
template <class F>
inline Steps shift_right(Steps a, const F& count_of) {
  return _mm256_srlv_epi64(a, _mm256_set_epi64x(count_of(1), count_of(1), count_of(0), count_of(0)));
}
template <class F>
inline Steps shift_left(Steps a, const F& count_of) {
  return _mm256_sllv_epi64(a, _mm256_set_epi64x(count_of(1), count_of(1), count_of(0), count_of(0)));
}
template <class F>
inline Steps where_bits(const F& bits_of, uint8_t value) {
  const __m256i bits = _mm256_set1_epi32(static_cast<int>(uint32_t{bits_of(0)} | uint32_t{bits_of(1)} << 16));
  const __m256i places = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                          2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(bits, places), own);
  return _mm256_and_si256(_mm256_cmpeq_epi8(spread, own), every(value));
}
inline Sums add_sums(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
inline Packet to_floats(Sums a) { return _mm256_cvtepi32_ps(a); }

inline Sums sums_of_lanes_of(Sums a, Sums b, Sums c, Sums d) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}
inline Packet one_of_each(const Packet& a, const Packet& b, const Packet& c, const Packet& d) {
  return _mm256_blend_ps(_mm256_blend_ps(a, b, 0x22), _mm256_blend_ps(c, d, 0x88), 0xcc);
}

inline Sums add_products(Sums sums, Steps unsigned_steps, Steps steps) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(unsigned_steps), "x"(steps));
  return sums;
}
inline Sums products(Steps unsigned_steps, Steps steps) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_steps, steps), _mm256_set1_epi16(1));
}
inline Sums signed_products(Steps a, Steps b) { return products(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)); }

template <int64_t bytes, int64_t offset>
inline Packet halves_of_blocks(const char* from) {
  uint16_t low = 0, high = 0;
  std::memcpy(&low, from + offset, sizeof low);
  std::memcpy(&high, from + bytes + offset, sizeof high);
  const __m128i all = _mm_cvtsi32_si128(static_cast<int>(low | uint32_t{high} << 16));
  return _mm256_cvtph_ps(_mm_shuffle_epi8(all, _mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3)));
}
inline Packet half_everywhere(const char* from) {
  short bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}
template <int first, int stride>
inline Packet bytes_of_lanes(uint64_t all) {
  const auto number = [&](int i) { return _mm_set1_epi32(static_cast<int8_t>(all >> 8 * i)); };
  return _mm256_cvtepi32_ps(_mm256_set_m128i(number(first + stride), number(first)));
}

#else  // in vectors of the compiler's

using Steps [[gnu::vector_size(16)]] = uint8_t;
using Sums [[gnu::vector_size(16)]] = int32_t;

template <class F>
inline Steps load_lanes(const F& pointer_of) {
  Steps steps;
  std::memcpy(&steps, pointer_of(0), sizeof steps);
  return steps;
}
inline Steps load_steps(const int8_t* from) {
  return load_lanes([&](int) { return from; });
}
inline Sums load_sums(const int32_t* from) {
  Sums sums;
  std::memcpy(&sums, from, sizeof sums);
  return sums;
}
inline Steps every(uint8_t value) { return Steps{} + value; }
inline Steps both(Steps a, Steps b) { return a & b; }
inline Steps either(Steps a, Steps b) { return a | b; }
inline Steps flip(Steps a, Steps b) { return a ^ b; }
template <class F>
inline Steps shift_right(Steps a, const F& count_of) {
  return a >> static_cast<uint8_t>(count_of(0));
}
template <class F>
inline Steps shift_left(Steps a, const F& count_of) {
  return a << static_cast<uint8_t>(count_of(0));
}
template <class F>
inline Steps where_bits(const F& bits_of, uint8_t value) {
  const uint16_t bits = bits_of(0);
  const auto low = static_cast<uint8_t>(bits), high = static_cast<uint8_t>(bits >> 8);
  const Steps bytes = {low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, high};
  const Steps own = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  return reinterpret_cast<Steps>((bytes & own) == own) & every(value);
}
inline Sums add_sums(Sums a, Sums b) { return a + b; }
inline Packet to_floats(Sums a) {
  using Floats [[gnu::vector_size(16)]] = float;
  const Floats floats = __builtin_convertvector(a, Floats);
  alignas(16) float each[4];
  std::memcpy(each, &floats, sizeof each);
  return load(each);
}
inline Sums sums_of_lanes_of(Sums a, Sums b, Sums c, Sums d) {
  const Sums ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Sums cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}
inline Packet one_of_each(const Packet& a, const Packet& b, const Packet& c, const Packet& d) {
  float each[4][4];
  const Packet* const all[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; ++i) store(each[i], *all[i]);
  const float own[4] = {each[0][0], each[1][1], each[2][2], each[3][3]};
  return load(own);
}
// A product of two bytes fits into 16 bits, as one of them is at most 127 in size.
template <class Byte>
inline Sums sums_of_four(Steps a, Steps b) {
  using Bytes [[gnu::vector_size(16)]] = Byte;
  using SignedBytes [[gnu::vector_size(16)]] = int8_t;
  using Words [[gnu::vector_size(32)]] = int16_t;
  using Pairs [[gnu::vector_size(32)]] = int32_t;
  const Words words = __builtin_convertvector(reinterpret_cast<Bytes>(a), Words) *
                      __builtin_convertvector(reinterpret_cast<SignedBytes>(b), Words);
  const auto even = __builtin_shufflevector(words, words, 0, 2, 4, 6, 8, 10, 12, 14),
             odd = __builtin_shufflevector(words, words, 1, 3, 5, 7, 9, 11, 13, 15);
  const Pairs pairs = __builtin_convertvector(even, Pairs) + __builtin_convertvector(odd, Pairs);
  return __builtin_shufflevector(pairs, pairs, 0, 2, 4, 6) + __builtin_shufflevector(pairs, pairs, 1, 3, 5, 7);
}
inline Sums add_products(Sums sums, Steps unsigned_steps, Steps steps) {
  return sums + sums_of_four<uint8_t>(unsigned_steps, steps);
}
inline Sums products(Steps unsigned_steps, Steps steps) { return sums_of_four<uint8_t>(unsigned_steps, steps); }
inline Sums signed_products(Steps a, Steps b) { return sums_of_four<int8_t>(a, b); }

inline Packet half_everywhere(const char* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return broadcast(f16_value(bits));
}
template <int64_t bytes, int64_t offset>
inline Packet halves_of_blocks(const char* from) {
  return half_everywhere(from + offset);
}
template <int first, int stride>
inline Packet bytes_of_lanes(uint64_t all) {
  return broadcast(static_cast<float>(static_cast<int8_t>(all >> 8 * first)));
}

#endif

// Each lane's sum of its four, four times.
inline Sums sums_of_lanes_of(Sums a) { return sums_of_lanes_of(a, a, a, a); }

// Lane i begins in block i. Loads of more than a lane, which cross lines, made streams from memory slower by a third.
template <int64_t bytes>
inline Steps lanes_of_blocks(const char* from) {
  return load_lanes([&](int lane) { return from + lane * bytes; });
}

inline Steps low_four(Steps bytes) { return both(bytes, every(15)); }
inline Steps high_four(Steps bytes) {
  return low_four(shift_right(bytes, [](int) { return 4; }));
}

}  // namespace nlsplit::inline kernels
