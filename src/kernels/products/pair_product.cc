#include "kernels/products/pair_product.h"

#include <array>
#include <atomic>

#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

std::atomic<bool> pair_instruction = false;

template <class How, int rows, int vectors>
void run_pair_tile(const PairTileWork& work) {
  Packet sum[rows * vectors];
#pragma GCC unroll 32
  for (int i = 0; i < rows * vectors; ++i) sum[i] = work.first ? zeros() : load(work.sums + i * width);
  const float* scalars = work.scalars;
  const float* panel = work.panel;
  {
    [[maybe_unused]] const typename How::Surroundings surroundings;
    for (int64_t i = 0; i < work.k; ++i) {
      Packet column[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        column[v] = load(panel + v * width);
        if (v * width % line_floats == 0) fetch(panel + work.ahead + v * width);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Packet scalar = broadcast(scalars[r]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) How::add(sum[r * vectors + v], scalar, column[v]);
      }
      scalars += rows;
      panel += vectors * width;
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < rows * vectors; ++i) store(work.sums + i * width, sum[i]);
}

// [vectors - 1][rows - 1]
template <class How>
constexpr auto pair_tiles = []<int... r>(std::integer_sequence<int, r...>) {
  return std::array{std::array<PairTile, sizeof...(r)>{run_pair_tile<How, r + 1, 1>...},
                    std::array<PairTile, sizeof...(r)>{run_pair_tile<How, r + 1, 2>...}};
}
(std::make_integer_sequence<int, most_tile_rows>{});

template <int rows, int vectors>
void run_unfolded_tile(const PairTileWork& work) {
  Tile<rows, vectors> tile;
  for (int i = 0; i < rows * vectors; ++i) tile.at[i] = work.first ? zeros() : load(work.sums + i * width);
  {
    [[maybe_unused]] const WithoutSubnormals surroundings;
    accumulate(tile, work.scalars, work.panel, vectors * width, work.k, work.ahead);
  }
  for (int i = 0; i < rows * vectors; ++i) store(work.sums + i * width, tile.at[i]);
}

constexpr auto unfolded_tiles = []<int... r>(std::integer_sequence<int, r...>) {
  return std::array{std::array<PairTile, sizeof...(r)>{run_unfolded_tile<r + 1, 1>...},
                    std::array<PairTile, sizeof...(r)>{run_unfolded_tile<r + 1, 2>...}};
}
(std::make_integer_sequence<int, most_tile_rows>{});

// [begin, begin + count) of a row of k as pairs.
void pairs_of_row(const uint16_t* row, int64_t k, int64_t begin, int64_t count, float* to) {
  const int64_t whole = std::min(count, k / 2 - begin);
  if (whole > 0) std::memcpy(to, row + 2 * begin, static_cast<size_t>(whole) * sizeof(float));
  if (whole < count) to[count - 1] = pair_of(row[k - 1], 0);
}

}  // namespace

bool has_pair_instruction() { return pair_instruction.load(std::memory_order_relaxed); }
void use_pair_instruction(bool use) { pair_instruction.store(use, std::memory_order_relaxed); }

PairTile pair_tile(int64_t rows, int64_t vectors) {
  const auto r = static_cast<size_t>(rows - 1), v = static_cast<size_t>(vectors - 1);
#if defined(__AVX512BW__)
  if (has_pair_instruction()) return pair_tiles<PairsByInstruction>[v][r];
#endif
  return pair_tiles<PairsByFloats>[v][r];
}

PairTile unfolded_tile(int64_t rows, int64_t vectors) {
  return unfolded_tiles[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)];
}

void unfold_pairs(const float* pairs, int64_t count, int64_t group, float* to) {
  for (int64_t i = 0; i < count; ++i, pairs += group, to += 2 * group) {
    int64_t g = 0;
    for (; g + width <= group; g += width) {
      const Packet both = load(pairs + g);
      store(to + g, PairsByFloats::second(both));
      store(to + group + g, PairsByFloats::first(both));
    }
    for (; g < group; ++g) {
      const auto both = std::bit_cast<uint32_t>(pairs[g]);
      to[g] = std::bit_cast<float>(both & 0xffff0000u);
      to[group + g] = std::bit_cast<float>(both << 16);
    }
  }
}

void pack_pair_rows(const PairLeft& left, int64_t row, int64_t rows, int64_t pair, int64_t pairs, float* to,
                    float* staging) {
  if (left.turned > 0) {
    const uint16_t* at = left.halves + 2 * pair * left.turned + row;
    for (int64_t i = pair; i < pair + pairs; ++i, at += 2 * left.turned) {
      const bool whole = 2 * i + 1 < left.k;
      for (int64_t r = 0; r < rows; ++r) *to++ = pair_of(at[r], whole ? at[left.turned + r] : uint16_t{0});
    }
    return;
  }
  if (left.k % 2 == 0) {  // the pairs lie there already
    const auto* all = reinterpret_cast<const float*>(left.halves);
    const int64_t stride = left.k / 2;
    return pack_left({all + row * stride + pair, stride, 1}, rows, pairs, to);
  }
  float* const each = rows == 1 ? to : staging;
  for (int64_t r = 0; r < rows; ++r)
    pairs_of_row(left.halves + (row + r) * left.k, left.k, pair, pairs, each + r * pairs);
  if (rows > 1) pack_left({staging, pairs, 1}, rows, pairs, to);
}

void pack_pair_panels(const PairRight& right, int64_t k, int64_t n, float* packed) {
  if (right.k_stride == 1 && k % 2 == 0 && right.column_stride % 2 == 0)  // the pairs lie there already
    return pack_right({reinterpret_cast<const float*>(right.data), 1, right.column_stride / 2}, k / 2, n, packed);
  constexpr int64_t panel_width = tile_vectors * width;
  for (int64_t column = 0; column < n; column += panel_width) {
    const int64_t columns = std::min(panel_width, n - column), wide = columns > width ? panel_width : width;
    for (int64_t i = 0; i < k; i += 2) {
#if defined(__AVX512BW__)
      if (right.column_stride == 1) {
        for (int64_t c = 0; c < wide; c += width) {
          const int64_t some = std::clamp<int64_t>(columns - c, 0, width);
          const uint16_t* at = right.data + column + c + i * right.k_stride;
          const __m512i first = _mm512_castps_si512(load_bf16_part(at, some));
          const Packet second = i + 1 < k ? load_bf16_part(at + right.k_stride, some) : zeros();
          store(packed,
                _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(first, 16), _mm512_castps_si512(second))));
          packed += width;
        }
        continue;
      }
#endif
      for (int64_t c = 0; c < wide; ++c) {
        const uint16_t* at = right.data + (column + c) * right.column_stride + i * right.k_stride;
        *packed++ = c >= columns ? 0.0f : pair_of(at[0], i + 1 < k ? at[right.k_stride] : uint16_t{0});
      }
    }
  }
}

}  // namespace nlsplit::inline kernels
