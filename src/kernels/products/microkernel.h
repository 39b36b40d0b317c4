// The register tiles: `rows` scalars times `vectors` packets, accumulated over k. An element is one chain of fused
// multiply-adds in the order of k, whatever the tile, its neighbours and the blocks of k it is cut into (a partial sum
// is kept in full), so results do not depend on how the work is tiled. Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", ACM TOMS 34(3), 2008, is where tiles like these come from.
#pragma once

#include <utility>

#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

inline constexpr int tile_vectors = 2;
inline constexpr int most_tile_rows = static_cast<int>(tile_rows(level));  // what the registers hold

// Element by element and written out: a copy of a whole array, or a loop that GCC 12 takes for one, would go through
// memory and keep the sums out of the registers.
template <int n>
inline void copy_packets(Packet (&to)[n], const Packet (&from)[n]) {
  [&]<int... i>(std::integer_sequence<int, i...>) { ((to[i] = from[i]), ...); }
  (std::make_integer_sequence<int, n>{});
}

template <int rows, int vectors>
struct Tile {
  Packet at[rows * vectors];  // row after row

  void clear() {
    [this]<int... i>(std::integer_sequence<int, i...>) { ((at[i] = zeros()), ...); }
    (std::make_integer_sequence<int, rows * vectors>{});
  }
};

// scalars: k groups of `rows`; panel: k rows of vectors * width floats, `panel_stride` apart. `ahead` floats behind
// each of them is what is worth fetching meanwhile; 0: nothing is.
template <int rows, int vectors>
inline void accumulate(Tile<rows, vectors>& tile, const float* scalars, const float* panel, int64_t panel_stride,
                       int64_t k, int64_t ahead) {
  Packet sum[rows * vectors];
  copy_packets(sum, tile.at);
  for (; k > 0; --k) {
    Packet column[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      column[v] = load(panel + v * width);
      if (v * width % line_floats == 0) fetch(panel + ahead + v * width);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Packet scalar = broadcast(scalars[r]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r * vectors + v] = multiply_add(scalar, column[v], sum[r * vectors + v]);
    }
    scalars += rows;
    panel += panel_stride;
  }
  copy_packets(tile.at, sum);
}

// The scalars are read from an image: those of step i at image + offsets[i], in image_rows rows of `pixels`, `pitch`
// apart.
template <int image_rows, int pixels, int vectors>
inline void accumulate_image(Tile<image_rows * pixels, vectors>& tile, const float* image, int64_t pitch,
                             const int64_t* offsets, const float* panel, int64_t k) {
  Packet sum[image_rows * pixels * vectors];
  copy_packets(sum, tile.at);
  for (int64_t i = 0; i < k; ++i) {
    Packet column[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) column[v] = load(panel + v * width);
    const float* at = image + offsets[i];
#pragma GCC unroll 16
    for (int y = 0; y < image_rows; ++y) {
#pragma GCC unroll 16
      for (int x = 0; x < pixels; ++x) {
        const Packet scalar = broadcast(at[x]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) {
          sum[(y * pixels + x) * vectors + v] = multiply_add(scalar, column[v], sum[(y * pixels + x) * vectors + v]);
        }
      }
      at += pitch;
    }
    panel += vectors * width;
  }
  copy_packets(tile.at, sum);
}

}  // namespace nlsplit::inline kernels
