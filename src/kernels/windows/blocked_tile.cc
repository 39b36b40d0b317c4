#include "kernels/windows/blocked_tile.h"

#include <array>
#include <utility>

#include "kernels/products/microkernel.h"

namespace nlsplit::inline kernels {
namespace {

template <bool planar, int rows, int pixels, int vectors>
void run_tile(const TileShared& shared, const TileAt& at) {
  constexpr int all = rows * pixels;
  constexpr int pixel_floats = planar ? 1 : width;
  Packet sum[all * vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
    const Packet start = shared.bias == nullptr ? zeros() : load(shared.bias + v * width);
#pragma GCC unroll 16
    for (int p = 0; p < all; ++p) sum[p * vectors + v] = start;
  }
  const float* panel = shared.panel;
  const float* next_panel = shared.next_panel;
  for (int64_t i = 0; i < shared.steps; ++i) {
    const float* from = at.image + shared.offsets[i];
    const int64_t lanes = planar ? 1 : i < shared.full_steps ? width : shared.last_lanes;
    const float* next_image = from + shared.ahead;
    for (const float* end = from + lanes; from != end; ++from) {
      fetch_near(next_image);
      next_image += pixel_floats;
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) fetch(next_panel + v * width);
      next_panel += vectors * width;
      Packet column[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) column[v] = load(panel + v * width);
      const float* row = from;
#pragma GCC unroll 2
      for (int y = 0; y < rows; ++y) {
#pragma GCC unroll 16
        for (int x = 0; x < pixels; ++x) {
          const Packet scalar = broadcast(row[x * pixel_floats]);
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) {
            sum[(y * pixels + x) * vectors + v] = multiply_add(scalar, column[v], sum[(y * pixels + x) * vectors + v]);
          }
        }
        row += shared.pitch;
      }
      panel += vectors * width;
    }
  }
  const Packet low = broadcast(shared.low), high = broadcast(shared.high);
  if (at.operand == nullptr) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 16
      for (int p = 0; p < all; ++p) {
        store(at.out + v * shared.out_stride + p * width, at_most(at_least(sum[p * vectors + v], low), high));
      }
    }
    return;
  }
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 16
    for (int p = 0; p < all; ++p) {
      const int64_t to = v * shared.out_stride + p * width;
      store(at.out + to, at_most(at_least(add(sum[p * vectors + v], load(at.operand + to)), low), high));
    }
  }
}

template <bool planar, int rows, int vectors, int... p>
constexpr auto functions_of(std::integer_sequence<int, p...>) {
  return std::array<TileFunction, sizeof...(p)>{run_tile<planar, rows, p + 1, vectors>...};
}
using OneRow = std::make_integer_sequence<int, most_tile_rows>;
using TwoRows = std::make_integer_sequence<int, most_tile_rows / 2>;

template <bool planar>
TileFunction tile_of(int rows, int pixels, int vectors) {
  static constexpr std::array one_row = {functions_of<planar, 1, 1>(OneRow{}), functions_of<planar, 1, 2>(OneRow{})};
  static constexpr std::array two_rows = {functions_of<planar, 2, 1>(TwoRows{}), functions_of<planar, 2, 2>(TwoRows{})};
  const auto v = static_cast<size_t>(vectors - 1), p = static_cast<size_t>(pixels - 1);
  return rows == 1 ? one_row[v][p] : two_rows[v][p];
}

}  // namespace

TileFunction blocked_tile(int rows, int pixels, int vectors) { return tile_of<false>(rows, pixels, vectors); }
TileFunction planar_tile(int rows, int pixels, int vectors) { return tile_of<true>(rows, pixels, vectors); }

}  // namespace nlsplit::inline kernels
