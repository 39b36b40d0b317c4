// The product under Gemm, MatMul and Linear where both operands are multiplied as bfloat16, pair by pair
// (kernels/module/bf16_pairs.h): register tiles as those of kernels/products/product.h, whose scalars and vectors are
// pairs of neighbours along k. An element of the result is one chain over the pairs of k, whatever the tiles, blocks
// and threads; where k is odd the last pair's second half is zero.
#pragma once

#include <algorithm>

#include "kernels/layout.h"
#include "kernels/module/bf16_pairs.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"

namespace nlsplit::inline kernels {

// m rows of k elements of bfloat16, as they lie; or the transpose of k rows of so many elements: `turned`, else 0.
struct PairLeft {
  const uint16_t* halves = nullptr;
  int64_t k = 0;
  int64_t turned = 0;
};

// A tile of sums: the rows from `row` on, the columns from `column` on, of which `columns` are real; `floats` from row
// to row.
struct PairSums {
  float* values;
  int64_t row, rows, column, columns, floats;
};

// sums (+)= scalars × panel over k pairs. `ahead` floats behind what it reads of the panel is worth fetching; 0:
// nothing.
struct PairTileWork {
  const float* scalars;
  const float* panel;
  int64_t k, ahead;
  bool first;  // the sums begin at zero
  float* sums;
};
using PairTile = void (*)(const PairTileWork&);
PairTile pair_tile(int64_t rows, int64_t vectors);

// Without the instruction: `count` groups of `group` pairs become twice as many groups of floats, the pairs' second
// halves in front of their first ones, as they are added up; and the tile for such groups.
void unfold_pairs(const float* pairs, int64_t count, int64_t group, float* to);
PairTile unfolded_tile(int64_t rows, int64_t vectors);

// Scalar panels of those rows and pairs: one, of at most tile_rows. `staging`: as many floats.
void pack_pair_rows(const PairLeft& left, int64_t row, int64_t rows, int64_t pair, int64_t pairs, float* to,
                    float* staging);

// Vector panels of pairs of a k × n operand.
struct PairRight {
  const uint16_t* data;
  int64_t k_stride, column_stride;
};
void pack_pair_panels(const PairRight& right, int64_t k, int64_t n, float* packed);

// Columns [begin, end) of rows [row, row_end); finish(PairSums) once for each tile, and finish.fetch_ahead(PairSums)
// before it is summed up.
template <class Finish>
void pair_product(const Product& p, int64_t row_begin, int64_t row_end, int64_t begin, int64_t end,
                  const PairLeft& left, const float* right, float* scratch, const Finish& finish) {
  constexpr int64_t panel_floats = tile_vectors * width, most_sums = most_tile_rows * panel_floats;
  constexpr int64_t stream_ahead = 2048;  // floats, as product.cc has it
  const int64_t pairs = pairs_of(p.k), k_step = pair_k_step(pairs);
  const ScalarPanels panels = scalar_panels(row_end - row_begin, most_tile_rows);
  const int64_t at_once = pair_panels_at_once(pairs, level), scalar_floats = most_tile_rows * k_step;
  float* const staging = scratch + 2 * at_once * scalar_floats;
  float* const unfolded = staging + scalar_floats;
  float* const partial = unfolded + 2 * pair_unfolded_at_once * panel_floats;
  for (int64_t p0 = 0; p0 < panels.count; p0 += at_once) {
    const int64_t p1 = std::min(panels.count, p0 + at_once);
    // Where there is no instruction, many rows' pairs become floats once, and so do a panel's that all of them meet.
    const bool unfolds = !has_pair_instruction() && p1 - p0 > 1;
    for (int64_t k0 = 0; k0 == 0 || k0 < pairs; k0 += k_step) {
      const int64_t kc = std::min(k_step, pairs - k0);
      const auto scalars_of = [&](int64_t i) { return scratch + 2 * (i - p0) * scalar_floats; };
      for (int64_t i = p0; i < p1; ++i) {
        const int64_t rows = panels.rows_of(i);
        float* const pairs_at = scalars_of(i) + (unfolds ? scalar_floats : 0);  // in the second half of its room
        pack_pair_rows(left, row_begin + panels.begin(i), rows, k0, kc, pairs_at, staging);
        if (unfolds) unfold_pairs(pairs_at, kc, rows, scalars_of(i));
      }
      for (int64_t column = begin; column < end; column += panel_floats) {
        const int64_t columns = std::min(panel_floats, p.n - column), vectors = columns > width ? 2 : 1;
        const float* panel = right + column * pairs + k0 * vectors * width;
        // The last to read a panel of weights fetches the next one.
        const bool fetches = column + panel_floats < end;
        const int64_t ahead = !fetches ? 0 : panels.count == 1 ? stream_ahead : pairs * vectors * width;
        // A tile that is finished at once has the same room as all others, which stays in a near cache.
        const auto sums_of = [&](int64_t i) {
          const int64_t of_columns = pairs > k_step ? (column - begin) / panel_floats * at_once : 0;
          return partial + (unfolds || pairs > k_step ? of_columns + (i - p0) : 0) * most_sums;
        };
        const bool last = k0 + kc >= pairs;
        const auto tile_of = [&](int64_t i) {
          return PairSums{sums_of(i), row_begin + panels.begin(i), panels.rows_of(i), column, columns, vectors * width};
        };
        if (unfolds) {
          for (int64_t at = 0; at == 0 || at < kc; at += pair_unfolded_at_once) {
            const int64_t some = std::min(pair_unfolded_at_once, kc - at);
            unfold_pairs(panel + at * vectors * width, some, vectors * width, unfolded);
            for (int64_t i = p0; i < p1; ++i)
              unfolded_tile(panels.rows_of(i), vectors)(
                  {scalars_of(i) + 2 * at * panels.rows_of(i), unfolded, 2 * some, 0, k0 + at == 0, sums_of(i)});
          }
          for (int64_t i = p0; last && i < p1; ++i) finish(tile_of(i));
          continue;
        }
        for (int64_t i = p0; i < p1; ++i) {
          if (last) finish.fetch_ahead(tile_of(i));
          pair_tile(panels.rows_of(i),
                    vectors)({scalars_of(i), panel, kc, i + 1 == p1 ? ahead : 0, k0 == 0, sums_of(i)});
          if (last) finish(tile_of(i));
        }
      }
    }
  }
}

// The whole of it by all workers: cut by rows if there are enough, else by columns. right: vector panels of pairs.
template <class Finish>
void shared_pair_product(const KernelCall& call, const Product& p, const PairLeft& left, const float* right,
                         float* scratch, const Finish& finish) {
  const int64_t own = pair_scratch_floats(p, level);
  const int64_t wanted = call.crew.workers <= 1 ? 1 : 4 * call.crew.workers;
  const bool by_rows = p.m >= 4 * most_tile_rows * wanted;
  const int64_t extent = by_rows ? p.m : p.n;
  const int64_t unit = by_rows ? most_tile_rows : tile_vectors * width;
  const int64_t step = round_up((std::max<int64_t>(extent, 1) + wanted - 1) / wanted, unit);
  parallel_for_workers(call, (extent + step - 1) / step, [&](int64_t piece, int worker) {
    const int64_t begin = piece * step, end = std::min(extent, begin + step);
    float* at = scratch + worker * own;
    by_rows ? pair_product(p, begin, end, 0, p.n, left, right, at, finish)
            : pair_product(p, 0, p.m, begin, end, left, right, at, finish);
  });
}

}  // namespace nlsplit::inline kernels
