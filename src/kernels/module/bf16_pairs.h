// bfloat16 in pairs: two neighbours along the axis that is summed over lie in the bits of one float, the first in its
// lower half. So what moves floats (panels, images, squares of registers) moves pairs, and one step of a sum is
//   sum = first · first + (second · second + sum),
// each product exact in float32, each sum rounded to the nearest, and what is below float32's normal numbers taken for
// zero. That is what the instruction vdpbf16ps does (AVX512-BF16; Intel, "Architecture Instruction Set Extensions
// Programming Reference", VDPBF16PS); where a CPU lacks it two multiply-adds do the same, so no bits depend on it.
#pragma once

#include <bit>

#include "graph/half.h"
#include "kernels/module/half_packets.h"

namespace nlsplit::inline kernels {

bool has_pair_instruction();  // may it be used? (kernel_module.h)

// While it lives this thread takes numbers below the normal ones for zero, as the instruction does. Levels that no CPU
// has it beside have nothing to be equal to, and leave such numbers alone.
class WithoutSubnormals {
 public:
#if defined(__AVX512BW__)
  WithoutSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | flush_results | flush_operands); }
  ~WithoutSubnormals() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned flush_results = 0x8000, flush_operands = 0x40;
  unsigned before_;
#else
  WithoutSubnormals() {}
  ~WithoutSubnormals() {}

 private:
#endif
  WithoutSubnormals(const WithoutSubnormals&) = delete;
  WithoutSubnormals& operator=(const WithoutSubnormals&) = delete;
};

#if defined(__AVX512BW__)
struct RoundsByInstruction;
struct PairsByInstruction {
  using Rounds = RoundsByInstruction;
  static constexpr bool halves_in_place = true;  // no registers for either half
  struct Surroundings {};                        // of sums that are being added up
  static void add(Packet& sum, const Packet& a, const Packet& b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
};
#endif

struct RoundsByFloats;
struct PairsByFloats {
  using Rounds = RoundsByFloats;
  static constexpr bool halves_in_place = false;
  using Surroundings = WithoutSubnormals;
  static Packet first(const Packet& pairs) {
#if defined(__AVX512BW__)
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
#elif defined(__AVX2__)
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
#elif defined(__SSE2__)
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(pairs), 16));
#else
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(pairs), 16));
#endif
  }
  static Packet second(const Packet& pairs) {
    return Eigen::internal::pand(pairs, broadcast(std::bit_cast<float>(0xffff0000u)));
  }
  static void add(Packet& sum, const Packet& a, const Packet& b) {
    sum = multiply_add(first(a), first(b), multiply_add(second(a), second(b), sum));
  }
};

// `count` floats, at most a vector, rounded to the nearest, ties to even, as bf16_bits does.
inline void store_bf16(uint16_t* to, const Packet& values, int64_t count) {
#if defined(__AVX512BW__)
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 none = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, none, quiet), 16));
  if (count >= width)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  else
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), halves);
#else
  alignas(64) float each[width];
  store(each, values);
  for (int64_t i = 0; i < std::min<int64_t>(count, width); ++i) to[i] = bf16_bits(each[i]);
#endif
}

// How results are rounded: one vector, or two neighbours, as store_bf16 rounds them.
struct RoundsByFloats {
  static int doubt(const Packet&) { return 0; }
  static void store_one(uint16_t* to, const Packet& values) { store_bf16(to, values, width); }
  static void store_two(uint16_t* to, const Packet& first, const Packet& second) {
    store_one(to, first);
    store_one(to + width, second);
  }
};
#if defined(__AVX512BW__)
// By instructions of AVX512-BF16 too. They take numbers below the normal ones for zero: of a vector that has any there
// is doubt, and it must go the other way.
struct RoundsByInstruction {
  static int doubt(const Packet& values) {
    constexpr int below_normal = 0x20;
    return _mm512_fpclass_ps_mask(values, below_normal);
  }
  static void store_one(uint16_t* to, const Packet& values) {
    __m256i halves;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(values));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
  static void store_two(uint16_t* to, const Packet& first, const Packet& second) {
    __m512i halves;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(first), "v"(second));
    _mm512_storeu_si512(to, halves);
  }
};
#endif

template <class Rounds>
inline void store_two_bf16(uint16_t* to, const Packet& first, const Packet& second) {
  if ((Rounds::doubt(first) | Rounds::doubt(second)) != 0) return RoundsByFloats::store_two(to, first, second);
  Rounds::store_two(to, first, second);
}

// Calls use(rounds) with the faster of these.
template <class Use>
inline void with_rounding(const Use& use) {
#if defined(__AVX512BW__)
  if (has_pair_instruction()) return use(RoundsByInstruction{});
#endif
  use(RoundsByFloats{});
}

inline void round_to_bf16(const float* from, int64_t count, uint16_t* to) {
  with_rounding([&](auto rounds) {
    int64_t i = 0;
    for (; i + 2 * width <= count; i += 2 * width)
      store_two_bf16<decltype(rounds)>(to + i, load(from + i), load(from + i + width));
    for (; i + width <= count; i += width) store_bf16(to + i, load(from + i), width);
    if (i < count) store_bf16(to + i, load_part(from + i, count - i), count - i);
  });
}

inline Packet load_bf16_part(const uint16_t* from, int64_t count) {
#if defined(__AVX512BW__)
  const __m256i halves = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#else
  uint16_t full[width] = {};
  std::memcpy(full, from, static_cast<size_t>(count) * sizeof(uint16_t));
  return load_bf16(full);
#endif
}

// Tensors of bfloat16 begin at even addresses, which need not be a float's.
inline Packet broadcast_pair(const float* at) {
  float pair;
  std::memcpy(&pair, at, sizeof pair);
  return broadcast(pair);
}

inline float pair_of(uint16_t first, uint16_t second) {
  return std::bit_cast<float>(static_cast<uint32_t>(second) << 16 | first);
}

}  // namespace nlsplit::inline kernels
