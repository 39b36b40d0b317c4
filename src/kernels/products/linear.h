// What the products with rows of weights share, whatever the weights' type: which rows meet which columns when. An
// element of the result is one chain of sums along its two rows, so its bits depend on nothing here.
#pragma once

#include <algorithm>

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

// Registers hold the sums of most_weight_rows × most_x_rows vectors, a row of weights and what it meets.
inline constexpr int most_weight_rows = level == Isa::v4 || level == Isa::neon ? 4 : 2;
inline constexpr int most_x_rows = level == Isa::v4 || level == Isa::neon ? 4 : 2;

struct LinearTiles {
  // [0]: of one row of weights, [1]: of most_weight_rows; of 1, 2 and 4 rows of x.
  LinearTileFunction of[2][3];
};

// make<weight_rows, x_rows>() is a LinearTileFunction.
template <class Make>
constexpr LinearTiles linear_tiles(const Make& make) {
  constexpr int four = std::min(4, most_x_rows);
  return {{{make.template operator()<1, 1>(), make.template operator()<1, 2>(), make.template operator()<1, four>()},
           {make.template operator()<most_weight_rows, 1>(), make.template operator()<most_weight_rows, 2>(),
            make.template operator()<most_weight_rows, four>()}}};
}

// Rows of weights that stay in a second-level cache while all rows of x meet them: weights are read from memory once.
inline constexpr int64_t weights_at_once = int64_t{1} << 18;  // bytes

// How far ahead weights are fetched that are read once, whole tiles: two pages, as product.cc has it.
inline constexpr int64_t stream_bytes_ahead = 8192;

inline void run_tiles(const KernelCall& call, const LinearTiles& tiles, const LinearTile& whole, int64_t m, int64_t n) {
  const int64_t most = std::max<int64_t>(1, weights_at_once / std::max<int64_t>(whole.weights_stride, 1));
  const int64_t chunk = std::max<int64_t>(most_weight_rows, most / most_weight_rows * most_weight_rows);
  // A few pieces for each worker, of whole tiles.
  const int64_t wanted = call.crew.workers <= 1 ? 1 : 8 * call.crew.workers;
  const int64_t step = std::min(chunk, round_up((n + wanted - 1) / wanted, most_weight_rows));
  const auto run = [&](int64_t row, int64_t rows, int64_t x_row, int64_t x_rows, bool fetches) {
    LinearTile tile = whole;
    tile.weights += row * whole.weights_stride;
    tile.x += x_row * whole.x_stride;
    tile.out += x_row * whole.out_stride + row;
    if (tile.bias != nullptr) tile.bias += row;
    const int64_t own = std::max<int64_t>(rows * whole.weights_stride, 1);
    tile.ahead = fetches ? round_up(stream_bytes_ahead, own) : 0;
    tiles.of[rows > 1 ? 1 : 0][x_rows / 2](tile);
  };
  parallel_for(call, step == 0 ? 0 : (n + step - 1) / step, [&](int64_t piece) {
    const int64_t begin = piece * step, end = std::min(n, begin + step);
    for (int64_t x_row = 0, x_rows = 0; x_row < m; x_row += x_rows) {
      x_rows = std::min<int64_t>(most_x_rows, m - x_row);
      if (x_rows == 3) x_rows = 2;
      int64_t row = begin;
      for (; row + most_weight_rows <= end; row += most_weight_rows)
        run(row, most_weight_rows, x_row, x_rows, x_row == 0);
      for (; row < end; ++row) run(row, 1, x_row, x_rows, x_row == 0);
    }
  });
  const Epilogue epilogue(call);
  if (!epilogue.empty()) epilogue.apply(output(call), 0, m * n);
}

}  // namespace nlsplit::inline kernels
