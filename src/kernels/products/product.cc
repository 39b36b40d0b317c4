#include "kernels/products/product.h"

#include <algorithm>
#include <array>

#include "kernels/layout.h"
#include "kernels/products/microkernel.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;

// How far ahead weights are fetched that are read once, in floats: two pages. Streams from memory gained a fifth over
// what the hardware fetches by itself, ones in a cache lost a few percent.
constexpr int64_t stream_ahead = 2048;

// One register tile and where it belongs.
struct TileWork {
  const float* scalars;
  const float* panel;
  int64_t panel_stride;
  int64_t ahead;
  int64_t k;
  float* out;
  int64_t out_stride;
  int64_t columns;   // how many of the tile's are real
  bool first, last;  // block of k
  const float* row_bias;
  const float* column_bias;
  const float* operand;
  const EpilogueHead* head;
};

template <int rows, int vectors>
void run_tile(const TileWork& work) {
  Tile<rows, vectors> tile;
  // Only the last vector may be incomplete.
  const int64_t part = work.columns - (vectors - 1) * width;
  const auto get = [&](const float* from, int v) {
    return v + 1 < vectors || part == width ? load(from + v * width) : load_part(from + v * width, part);
  };
  if (work.first) {
    tile.clear();
  } else {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) tile.at[r * vectors + v] = get(work.out + r * work.out_stride, v);
    }
  }
  accumulate(tile, work.scalars, work.panel, work.panel_stride, work.k, work.ahead);
  if (work.last && work.row_bias != nullptr) {
    for (int r = 0; r < rows; ++r) {
      const Packet bias = broadcast(work.row_bias[r]);
      for (int v = 0; v < vectors; ++v) tile.at[r * vectors + v] = add(tile.at[r * vectors + v], bias);
    }
  }
  if (work.last && work.column_bias != nullptr) {
    for (int v = 0; v < vectors; ++v) {
      const Packet bias = get(work.column_bias, v);
      for (int r = 0; r < rows; ++r) tile.at[r * vectors + v] = add(tile.at[r * vectors + v], bias);
    }
  }
  if (work.last && work.operand != nullptr) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        tile.at[r * vectors + v] = add(tile.at[r * vectors + v], get(work.operand + r * work.out_stride, v));
      }
    }
  }
  if (work.last && work.head->clamps) {
    const Packet low = broadcast(work.head->low), high = broadcast(work.head->high);
    for (Packet& at : tile.at) at = at_most(at_least(at, low), high);
  }
  for (int r = 0; r < rows; ++r) {
    float* to = work.out + r * work.out_stride;
    for (int v = 0; v < vectors; ++v) {
      if (v + 1 < vectors || part == width) {
        store(to + v * width, tile.at[r * vectors + v]);
      } else {
        store_part(to + v * width, tile.at[r * vectors + v], part);
      }
    }
  }
}

using TileFunction = void (*)(const TileWork&);

// [vectors - 1][rows - 1]
constexpr auto tile_functions = []<int... r>(std::integer_sequence<int, r...>) {
  return std::array{std::array<TileFunction, sizeof...(r)>{run_tile<r + 1, 1>...},
                    std::array<TileFunction, sizeof...(r)>{run_tile<r + 1, 2>...}};
}
(std::make_integer_sequence<int, most_tile_rows>{});
static_assert(tile_vectors == 2);

static_assert(product_columns_step % panel_width == 0);

int64_t panel_columns(int64_t n, int64_t begin) { return std::min(panel_width, n - begin); }
int64_t panel_vectors(int64_t columns) { return columns > width ? 2 : 1; }

// put(c, column c) of a square: a vector from each of those rows, at `i`.
template <class Put>
inline void transpose_square(const float* const (&rows)[width], int64_t i, const Put& put) {
#if defined(__AVX512F__)
  // Fours of columns: of every fourth row a quarter of a vector, which the loads put in its place. Then squares of four
  // within the quarters. A square of sixteen vectors would not fit into the registers beside what it becomes.
#pragma GCC unroll 4
  for (int64_t c = 0; c < width; c += 4) {
    const int64_t at = i + c;
    __m512 four[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      __m512 quarters = _mm512_castps128_ps512(_mm_loadu_ps(rows[r] + at));
      quarters = _mm512_insertf32x4(quarters, _mm_loadu_ps(rows[r + 4] + at), 1);
      quarters = _mm512_insertf32x4(quarters, _mm_loadu_ps(rows[r + 8] + at), 2);
      four[r] = _mm512_insertf32x4(quarters, _mm_loadu_ps(rows[r + 12] + at), 3);
    }
    const __m512d low = _mm512_castps_pd(_mm512_unpacklo_ps(four[0], four[1])),
                  high = _mm512_castps_pd(_mm512_unpackhi_ps(four[0], four[1])),
                  next_low = _mm512_castps_pd(_mm512_unpacklo_ps(four[2], four[3])),
                  next_high = _mm512_castps_pd(_mm512_unpackhi_ps(four[2], four[3]));
    put(c, _mm512_castpd_ps(_mm512_unpacklo_pd(low, next_low)));
    put(c + 1, _mm512_castpd_ps(_mm512_unpackhi_pd(low, next_low)));
    put(c + 2, _mm512_castpd_ps(_mm512_unpacklo_pd(high, next_high)));
    put(c + 3, _mm512_castpd_ps(_mm512_unpackhi_pd(high, next_high)));
  }
#else
  Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
  for (int r = 0; r < width; ++r) block.packet[r] = load(rows[r] + i);
  Eigen::internal::ptranspose(block);
#pragma GCC unroll 16
  for (int c = 0; c < width; ++c) put(c, block.packet[c]);
#endif
}

// Rows of consecutive floats → columns of `rows` floats, in squares of registers; returns how many of the k columns.
int64_t transpose_rows(const float* from, int64_t row_stride, int64_t rows, int64_t k, float* to) {
  constexpr int64_t lines_ahead = 4;
  const float* end = to + rows * k;
  const int64_t done = k / width * width;
  for (int64_t first = 0; first < rows; first += width) {
    const int64_t part = std::min<int64_t>(width, rows - first);
    const float* row_at[width];  // rows that are not there: the last one again
    for (int r = 0; r < width; ++r) row_at[r] = from + (first + std::min<int64_t>(r, part - 1)) * row_stride;
    for (int64_t i = 0; i < done; i += width) {
      for (int r = 0; r < width; ++r) fetch_near(row_at[r] + i + lines_ahead * line_floats);
      // Where one square holds all rows, what it has too much is overwritten by the next column.
      const bool whole = part == width || (rows < width && to + (i + width - 1) * rows + width <= end);
      transpose_square(row_at, i, [&](int64_t c, const Packet& values) {
        float* column = to + (i + c) * rows + first;
        if (whole || (rows < width && column + width <= end)) {
          store(column, values);
        } else {
          store_part(column, values, part);
        }
      });
    }
  }
  return done;
}

// Columns whose `rows` elements are neighbours, of a transposed matrix: each goes as a vector, and what it has too much
// is overwritten by the next one. Returns how many of the k columns; the last ones have nothing behind them.
int64_t copy_columns(const float* from, int64_t k_stride, int64_t rows, int64_t k, float* to) {
  const int64_t done = std::max<int64_t>(k - (width + rows - 1) / rows, 0);
  if (k_stride < rows) return 0;
  for (int64_t i = 0; i < done; ++i) {
    for (int64_t r = 0; r < rows; r += width) store(to + i * rows + r, load(from + i * k_stride + r));
  }
  return done;
}

// Rows of panels [first, last), columns k0 … k0 + k. They are copied byte by byte, here and below: pairs of bfloat16
// come as floats (kernels/products/pair_product.cc), and may stand at any even address.
void pack_scalar_panels(const Left& left, const ScalarPanels& panels, int64_t first, int64_t last, int64_t k0,
                        int64_t k, float* to) {
  for (int64_t p = first; p < last; ++p) {
    const int64_t rows = panels.rows_of(p);
    const float* from = left.data + panels.begin(p) * left.row_stride + k0 * left.k_stride;
    int64_t done = 0;
    if (left.k_stride == 1) done = transpose_rows(from, left.row_stride, rows, k, to);
    if (left.row_stride == 1) done = copy_columns(from, left.k_stride, rows, k, to);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = from + r * left.row_stride;
      for (int64_t i = done; i < k; ++i) std::memcpy(&to[i * rows + r], row + i * left.k_stride, sizeof(float));
    }
    to += rows * k;
  }
}

void pack_vector_panel(const Right& right, int64_t column, int64_t columns, int64_t k0, int64_t k, float* to) {
  if (right.packer != nullptr) return right.packer->pack(*right.packer, column, columns, k0, k, to);
  const int64_t wide = panel_vectors(columns) * width;
  const float* from = right.data + column * right.column_stride + k0 * right.k_stride;
  if (right.column_stride == 1) {
    for (int64_t i = 0; i < k; ++i, to += wide, from += right.k_stride) {
      if (columns == panel_width) {
        for (int v = 0; v < tile_vectors; ++v) store(to + v * width, load(from + v * width));
      } else {
        std::memcpy(to, from, static_cast<size_t>(columns) * sizeof(float));
        std::fill(to + columns, to + wide, 0.0f);
      }
    }
    return;
  }
  const int64_t done =
      columns == wide && right.k_stride == 1 ? transpose_rows(from, right.column_stride, wide, k, to) : 0;
  for (int64_t c = 0; c < wide; ++c) {
    for (int64_t i = done; i < k; ++i) {
      float& at = to[i * wide + c];
      at = 0;
      if (c < columns) std::memcpy(&at, from + c * right.column_stride + i * right.k_stride, sizeof(float));
    }
  }
}

// A product block by block: its operands as they are, or packed into the workspace.
class Blocks {
 public:
  Blocks(int64_t m, int64_t n, int64_t k, const Left& left, const Right& right, float* out, const Finish& finish,
         float* workspace, int64_t room_rows)
      : n_(n),
        k_(k),
        left_(left),
        right_(right),
        out_(out),
        finish_(finish),
        panels_(scalar_panels(m, most_tile_rows)),
        left_in_place_(left.packed || (m == 1 && left.k_stride == 1)),
        right_in_place_(right.packed || (right.packer == nullptr && panels_.count == 1 && right.column_stride == 1)),
        left_block_(workspace),
        right_block_(workspace + (left_in_place_ ? 0 : round_up(product_left_floats(room_rows, k), widest_vector))) {}

  int64_t panels() const { return panels_.count; }

  // right_block_ holds `wide * kc` floats for each panel of the columns, whether or not it needs them.
  void pack_right(int64_t n0, int64_t n1, int64_t k0, int64_t kc) {
    float* to = right_block_;
    for (int64_t column = n0; column < n1; column += panel_width) {
      const int64_t columns = panel_columns(n_, column);
      if (!right_in_place_ || columns < panel_width) pack_vector_panel(right_, column, columns, k0, kc, to);
      to += kc * panel_vectors(columns) * width;
    }
  }

  void pack_left(int64_t p0, int64_t p1, int64_t k0, int64_t kc) {
    if (!left_in_place_) pack_scalar_panels(left_, panels_, p0, p1, k0, kc, left_block_);
  }

  // Panels p0 … p1 of rows, columns n0 … n1, each a run over k0 … k0 + kc.
  void multiply(int64_t p0, int64_t p1, int64_t n0, int64_t n1, int64_t k0, int64_t kc) {
    // Few products for each result: what takes the time is writing them, so row after row, in runs that the hardware
    // fetches ahead. The columns' panels are then read again for all rows, from the second-level cache.
    constexpr int64_t few = 64;
    if (kc <= few && !right_.packed) {
      for (int64_t p = p0; p < p1; ++p) {
        for (int64_t column = n0; column < n1; column += panel_width)
          multiply_column(p, p + 1, p0, column, n0, n1, k0, kc);
      }
      return;
    }
    for (int64_t column = n0; column < n1; column += panel_width) multiply_column(p0, p1, p0, column, n0, n1, k0, kc);
  }

 private:
  // Panels p0 … p1, of those packed from panel `packed` on, and one panel of columns.
  void multiply_column(int64_t p0, int64_t p1, int64_t packed, int64_t column, int64_t n0, int64_t n1, int64_t k0,
                       int64_t kc) {
    TileWork work{};
    work.k = kc;
    work.out_stride = n_;
    work.first = k0 == 0;
    work.last = k0 + kc >= k_;
    work.head = &finish_.head;
    work.columns = panel_columns(n_, column);
    const int64_t vectors = panel_vectors(work.columns);
    work.panel_stride = vectors * width;
    if (right_.packed) {
      work.panel = right_.data + column * k_ + k0 * work.panel_stride;
    } else if (right_in_place_ && work.columns == panel_width) {
      work.panel = right_.data + column + k0 * right_.k_stride;
      work.panel_stride = right_.k_stride;
    } else {
      work.panel = right_block_ + (column - n0) * kc;
    }
    work.column_bias = finish_.column_bias == nullptr ? nullptr : finish_.column_bias + column;
    // The last to read a panel of weights fetches the next one.
    const bool fetches = right_.packed && column + panel_width < n1;
    const int64_t ahead = !fetches ? 0 : panels_.count == 1 ? stream_ahead : k_ * work.panel_stride;
    for (int64_t p = p0; p < p1; ++p) {
      const int64_t rows = panels_.rows_of(p), row = panels_.begin(p), at = row * n_ + column;
      if (left_.packed) {
        work.scalars = left_.data + row * k_ + k0 * rows;
      } else {
        work.scalars = left_in_place_ ? left_.data + k0 : left_block_ + (row - panels_.begin(packed)) * kc;
      }
      work.ahead = p + 1 == p1 ? ahead : 0;
      work.out = out_ + at;
      work.operand = finish_.head.operand == nullptr ? nullptr : finish_.head.operand + at;
      work.row_bias = finish_.row_bias == nullptr ? nullptr : finish_.row_bias + row;
      tile_functions[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)](work);
    }
  }

  int64_t n_, k_;
  const Left& left_;
  const Right& right_;
  float* out_;
  const Finish& finish_;
  ScalarPanels panels_;
  bool left_in_place_, right_in_place_;
  float *left_block_, *right_block_;
};

}  // namespace

void pack_left(const Left& left, int64_t m, int64_t k, float* packed) {
  const ScalarPanels panels = scalar_panels(m, most_tile_rows);
  pack_scalar_panels(left, panels, 0, panels.count, 0, k, packed);
}

void pack_right(const Right& right, int64_t k, int64_t n, float* packed) {
  for (int64_t column = 0; column < n; column += panel_width) {
    const int64_t columns = panel_columns(n, column);
    pack_vector_panel(right, column, columns, 0, k, packed);
    packed += k * panel_vectors(columns) * width;
  }
}

void product(int64_t m, int64_t n, int64_t k, const Left& left, const Right& right, float* out, const Finish& finish,
             float* workspace, int64_t room_rows) {
  product_columns(0, n, m, n, k, left, right, out, finish, workspace, room_rows);
}

void product_columns(int64_t begin, int64_t end, int64_t m, int64_t n, int64_t k, const Left& left, const Right& right,
                     float* out, const Finish& finish, float* workspace, int64_t room_rows) {
  room_rows = std::max(room_rows, m);
  Blocks blocks(m, n, k, left, right, out, finish, workspace, room_rows);
  constexpr int64_t panels_step = m_block / most_tile_rows;
  static_assert(n_block % panel_width == 0);
  if (right.packed) {  // some rows are finished before the next begin, so that their partial sums stay in a cache
    const int64_t k_step = product_k_step(room_rows);
    for (int64_t p0 = 0; p0 < blocks.panels(); p0 += panels_step) {
      const int64_t p1 = std::min(blocks.panels(), p0 + panels_step);
      for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += k_step) {
        const int64_t kc = std::min(k_step, k - k0);
        blocks.pack_left(p0, p1, k0, kc);
        blocks.multiply(p0, p1, begin, end, k0, kc);
      }
    }
    return;
  }
  for (int64_t n0 = begin; n0 < end; n0 += n_block) {  // what is packed of the right serves all rows
    const int64_t n1 = std::min(end, n0 + n_block);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += k_block) {
      const int64_t kc = std::min(k_block, k - k0);
      blocks.pack_right(n0, n1, k0, kc);
      for (int64_t p0 = 0; p0 < blocks.panels(); p0 += panels_step) {
        const int64_t p1 = std::min(blocks.panels(), p0 + panels_step);
        blocks.pack_left(p0, p1, k0, kc);
        blocks.multiply(p0, p1, n0, n1, k0, kc);
      }
    }
  }
}

int64_t matrix_offset(const Shape& shape, const Shape& out, size_t out_batch_axes, size_t matrix_axes, int64_t i) {
  if (shape.size() <= matrix_axes) return 0;
  const size_t axes = shape.size() - matrix_axes;
  int64_t stride = 1, offset = 0;
  for (size_t m = axes; m < shape.size(); ++m) stride *= shape[m];
  for (size_t back = 0; back < out_batch_axes; ++back) {
    const int64_t extent = out[out_batch_axes - 1 - back];
    const int64_t at = i % extent;
    i /= extent;
    if (back >= axes) continue;
    const int64_t own = shape[axes - 1 - back];
    if (own != 1) offset += at * stride;
    stride *= own;
  }
  return offset;
}

}  // namespace nlsplit::inline kernels
