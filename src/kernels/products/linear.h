// What the products with rows of weights share, whatever the weights' type: which rows meet which columns when. An
// element of the result is one chain of sums along its two rows, so its bits depend on nothing here.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {

// A few rows of weights by a few rows of x.
struct LinearTile {
  const char* weights;
  int64_t weights_stride;  // bytes from row to row
  const char* x;
  int64_t x_stride;  // likewise
  int64_t k;
  float* out;
  int64_t out_stride;  // floats
  const float* bias;   // of these rows of weights; nullptr: none
  int64_t ahead;       // bytes behind the weights that are worth fetching meanwhile
};
using LinearTileFunction = void (*)(const LinearTile&);

// All rows of weights and of x, which lie at `x`, `x_stride` bytes from each other.
inline LinearTile whole_tile(const KernelCall& call, const Linear& linear, const void* x, int64_t x_stride) {
  return {.weights = static_cast<const char*>(call.inputs[1]),
          .weights_stride = size_of(call.desc->inputs[1].dtype, linear.k),
          .x = static_cast<const char*>(x),
          .x_stride = x_stride,
          .k = linear.k,
          .out = output(call),
          .out_stride = linear.n,
          .bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr,
          .ahead = 0};
}

// Tiles of `x_rows` rows of x, by `rows` rows of weights and, for the last ones, by one.
struct LinearTiles {
  int rows, x_rows;
  LinearTileFunction many, one;
};

// Rows of weights that stay in a second-level cache while all rows of x meet them: weights are read from memory once.
inline constexpr int64_t weights_at_once = int64_t{1} << 18;  // bytes

// How far ahead weights are fetched that are read once, whole tiles: two pages, as product.cc has it.
inline constexpr int64_t stream_bytes_ahead = 8192;

// `kinds`: those with the most rows of x first, the last one has one.
inline void run_tiles(const KernelCall& call, std::span<const LinearTiles> kinds, const LinearTile& whole, int64_t m,
                      int64_t n) {
  constexpr int64_t unit = 12;  // a multiple of all rows of tiles
  const int64_t most = weights_at_once / std::max<int64_t>(whole.weights_stride, 1);
  const int64_t chunk = std::max<int64_t>(unit, most / unit * unit);
  // A few pieces for each worker, of whole tiles.
  const int64_t wanted = call.crew.workers <= 1 ? 1 : 8 * call.crew.workers;
  const int64_t step = std::min(chunk, round_up((n + wanted - 1) / wanted, unit));
  parallel_for(call, step == 0 ? 0 : (n + step - 1) / step, [&](int64_t piece) {
    const int64_t begin = piece * step, end = std::min(n, begin + step);
    int64_t x_row = 0;
    for (const LinearTiles& kind : kinds) {
      for (; x_row + kind.x_rows <= m; x_row += kind.x_rows) {
        for (int64_t row = begin, rows = 0; row < end; row += rows) {
          rows = row + kind.rows <= end ? kind.rows : 1;
          LinearTile tile = whole;
          tile.weights += row * whole.weights_stride;
          tile.x += x_row * whole.x_stride;
          tile.out += x_row * whole.out_stride + row;
          if (tile.bias != nullptr) tile.bias += row;
          const int64_t own = std::max<int64_t>(rows * whole.weights_stride, 1);
          tile.ahead = x_row == 0 ? round_up(stream_bytes_ahead, own) : 0;
          (rows == 1 ? kind.one : kind.many)(tile);
        }
      }
    }
  });
  const Epilogue epilogue(call);
  if (!epilogue.empty()) epilogue.apply(output(call), 0, m * n);
}

}  // namespace nlsplit::inline kernels
