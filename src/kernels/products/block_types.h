// How blocks of each type become vectors of steps and their scales; graph/graph.h and graph/ggml.cc say where the bits
// are. An element is scale * (step - zero) + offset.
#pragma once

#include "graph/graph.h"
#include "kernels/products/block_vectors.h"

namespace nlsplit::inline kernels {

struct Decoded {
  Steps first, second;  // the halves of `blocks_at_once` blocks of 32
  Packet scale;
  Packet second_scale;  // of types with two_scales
  Packet offset;        // of types with offsets
};

template <int64_t bytes, int64_t offset>
inline void decode_pairs(const char* from, Decoded& out) {
  const Steps pairs = lanes_of_blocks<bytes>(from + offset);
  out.first = low_four(pairs);
  out.second = high_four(pairs);
  out.scale = halves_of_blocks<bytes, 0>(from);
}

struct BlocksQ8_0 {
  static constexpr DType type = DType::q8_0;
  static constexpr int64_t elements = 32, bytes = 34;
  static constexpr int zero = 128;
  static constexpr bool offsets = false, two_scales = false;
  // Steps from -128 on, not from 0.
  static void decode_signed(const char* from, Decoded& out) {
    out.first = lanes_of_blocks<34>(from + 2);
    out.second = lanes_of_blocks<34>(from + 2 + lane_bytes);
    out.scale = halves_of_blocks<34, 0>(from);
  }
  static void decode(const char* from, int64_t, Decoded& out) {
    decode_signed(from, out);
    out.first = flip(out.first, every(128));
    out.second = flip(out.second, every(128));
  }
};

struct BlocksQ4_0 {
  static constexpr DType type = DType::q4_0;
  static constexpr int64_t elements = 32, bytes = 18;
  static constexpr int zero = 8;
  static constexpr bool offsets = false, two_scales = false;
  static void decode(const char* from, int64_t, Decoded& out) { decode_pairs<18, 2>(from, out); }
};

struct BlocksQ4_1 {
  static constexpr DType type = DType::q4_1;
  static constexpr int64_t elements = 32, bytes = 20;
  static constexpr int zero = 0;
  static constexpr bool offsets = true, two_scales = false;
  static void decode(const char* from, int64_t, Decoded& out) {
    decode_pairs<20, 4>(from, out);
    out.offset = halves_of_blocks<20, 2>(from);
  }
};

struct BlocksQ5_0 {
  static constexpr DType type = DType::q5_0;
  static constexpr int64_t elements = 32, bytes = 22;
  static constexpr int zero = 16;
  static constexpr bool offsets = false, two_scales = false;
  static void decode(const char* from, int64_t, Decoded& out) {
    decode_pairs<22, 6>(from, out);
    const auto bits_at = [&](int64_t offset) {
      return [=](int lane) {
        uint16_t bits = 0;
        std::memcpy(&bits, from + lane * 22 + offset, sizeof bits);
        return bits;
      };
    };
    out.first = either(out.first, where_bits(bits_at(2), 16));
    out.second = either(out.second, where_bits(bits_at(4), 16));
  }
};

// Of types whose blocks have 256 elements `from` is that block, and `at` the first group of 32 within it.
struct BlocksQ4_K {
  static constexpr DType type = DType::q4_k;
  static constexpr int64_t elements = 256, bytes = 144;
  static constexpr int zero = 0;
  static constexpr bool offsets = true, two_scales = false;
  static void decode(const char* from, int64_t at, Decoded& out) {
    // Two groups share 32 bytes, one has the low bits of each, the other the high ones.
    const char* steps = from + 16 + at / 2 * 32;
    const int64_t odd = blocks_at_once > 1 ? 0 : at % 2;
    const auto own_bits = [&](Steps pairs) {
      return low_four(shift_right(pairs, [&](int lane) { return (odd + lane) % 2 * 4; }));
    };
    const auto pairs_at = [&](const char* first) {
      return load_lanes([&](int lane) { return first + (odd + lane) / 2 * 32; });
    };
    out.first = own_bits(pairs_at(steps));
    out.second = own_bits(pairs_at(steps + lane_bytes));
    // The scales and the offsets of all eight groups, a byte each.
    uint32_t words[3];
    std::memcpy(words, from + 4, sizeof words);
    const uint64_t scales =
        (words[0] & 0x3f3f3f3fu) | uint64_t{(words[2] & 0x0f0f0f0fu) | (words[0] >> 2 & 0x30303030u)} << 32;
    const uint64_t below =
        (words[1] & 0x3f3f3f3fu) | uint64_t{(words[2] >> 4 & 0x0f0f0f0fu) | (words[1] >> 2 & 0x30303030u)} << 32;
    out.scale = multiply(half_everywhere(from), bytes_of_lanes<0, 1>(scales >> 8 * at));
    out.offset = subtract(zeros(), multiply(half_everywhere(from + 2), bytes_of_lanes<0, 1>(below >> 8 * at)));
  }
#if defined(__AVX512BW__)
  // The scales and the offsets of four rows at once, a block's side by side.
  template <class F>
  static void numbers_of_four(const F& block_of, int64_t at, Packet& scale, Packet& offset) {
    const auto begin_of = [&](int row) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block_of(row))); };
    const __m128i a = begin_of(0), b = begin_of(1), c = begin_of(2), d = begin_of(3);
    const __m128i ab = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    const __m128i cd = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    const __m128i halves = _mm_unpacklo_epi64(ab, cd);
    const __m128i words[3] = {_mm_unpackhi_epi64(ab, cd), _mm_unpacklo_epi64(ab_high, cd_high),
                              _mm_unpackhi_epi64(ab_high, cd_high)};
    // Half 0 of each row's two, then half 1.
    const __m128i sorted =
        _mm_shuffle_epi8(halves, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const auto all_lanes = [](__m128i four_halves) { return _mm512_broadcast_f32x4(_mm_cvtph_ps(four_halves)); };
    const auto six_bits = [&](__m128i own, int shift) {
      if (at == 0) return _mm_and_si128(own, _mm_set1_epi32(0x3f3f3f3f));
      const __m128i low = _mm_and_si128(_mm_srli_epi32(words[2], shift), _mm_set1_epi32(0x0f0f0f0f));
      return _mm_or_si128(low, _mm_and_si128(_mm_srli_epi32(own, 2), _mm_set1_epi32(0x30303030)));
    };
    const auto numbers = [&](__m128i of_rows) {
      const __m128i of_blocks = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_shuffle_epi8(of_rows, of_blocks)));
    };
    scale = multiply(all_lanes(sorted), numbers(six_bits(words[0], 0)));
    offset = subtract(zeros(), multiply(all_lanes(_mm_srli_si128(sorted, 8)), numbers(six_bits(words[1], 4))));
  }
#endif
};

struct BlocksQ6_K {
  static constexpr DType type = DType::q6_k;
  static constexpr int64_t elements = 256, bytes = 210;
  static constexpr int zero = 32;
  static constexpr bool offsets = false, two_scales = true;
  static void decode(const char* from, int64_t at, Decoded& out) {
    const int64_t quarter = blocks_at_once > 2 ? 0 : at % 4;
    const char *low = from + at / 4 * 64, *high = from + 128 + at / 4 * 32, *own = from + 192 + at * 2;
    const auto own_bits = [&](Steps fours, Steps twos) {
      const Steps four = low_four(shift_right(fours, [&](int lane) { return (quarter + lane) / 2 * 4; }));
      const Steps two = both(shift_right(twos, [&](int lane) { return (quarter + lane) * 2; }), every(3));
      return either(four, shift_left(two, [](int) { return 4; }));
    };
    const auto high_at = [&](int64_t offset) { return load_lanes([&](int) { return high + offset; }); };
    const auto low_at = [&](int64_t offset) {
      return load_lanes([&](int lane) { return low + (quarter + lane) % 2 * 32 + offset; });
    };
    out.first = own_bits(low_at(0), high_at(0));
    out.second = own_bits(low_at(lane_bytes), high_at(lane_bytes));
    const Packet d = half_everywhere(from + 208);
    uint64_t scales = 0;
    std::memcpy(&scales, own, std::min(blocks_at_once * 2, 8));
    out.scale = multiply(d, bytes_of_lanes<0, 2>(scales));
    out.second_scale = multiply(d, bytes_of_lanes<1, 2>(scales));
  }
};

}  // namespace nlsplit::inline kernels
