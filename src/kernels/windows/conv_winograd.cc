// 3x3 convolutions by F(4x4, 3x3): kernels/layout.h (Winograd) has the source and what lies where. The points are
// 0, 1, -1, 2, -2 and infinity:
//   Y = Aᵗ [ (G g Gᵗ) ⊙ (Bᵗ d B) ] A     for a tile d of 6 × 6, a filter g of 3 × 3, a result Y of 4 × 4.
// The ⊙ over all channels are 36 products, done by the same register tiles as the direct convolutions.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/layout.h"
#include "kernels/module/run.h"
#include "kernels/products/microkernel.h"
#include "kernels/windows/blocked_tile.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int in_side = 6, out_side = 4;
constexpr int64_t panel_width = tile_vectors * width;

// Bᵗ times a column of six.
inline void transform_in(const Packet (&d)[in_side], Packet (&r)[in_side]) {
  const Packet two = broadcast(2), four = broadcast(4), minus_four = broadcast(-4), minus_five = broadcast(-5);
  const Packet a = multiply_add(minus_four, d[2], d[4]), b = multiply_add(minus_four, d[1], d[3]);
  const Packet c = subtract(d[4], d[2]), e = multiply(two, subtract(d[3], d[1]));
  r[0] = multiply_add(four, d[0], multiply_add(minus_five, d[2], d[4]));
  r[1] = add(a, b);
  r[2] = subtract(a, b);
  r[3] = add(c, e);
  r[4] = subtract(c, e);
  r[5] = multiply_add(four, d[1], multiply_add(minus_five, d[3], d[5]));
}

// Aᵗ times a column of six.
inline void transform_out(const Packet (&m)[in_side], Packet (&r)[out_side]) {
  const Packet two = broadcast(2), four = broadcast(4), eight = broadcast(8);
  const Packet a = add(m[1], m[2]), b = subtract(m[1], m[2]), c = add(m[3], m[4]), d = subtract(m[3], m[4]);
  r[0] = add(add(m[0], a), c);
  r[1] = multiply_add(two, d, b);
  r[2] = multiply_add(four, c, a);
  r[3] = add(multiply_add(eight, d, b), m[5]);
}

struct TilePlace {
  int64_t sample, y, x;  // of its first output pixel
};

struct Work {
  Window w;
  Winograd wino;
  int64_t in_block, out_block;   // floats of a block of channels
  int64_t first = 0, count = 0;  // the tiles of this chunk

  TilePlace place(int64_t tile) const {
    const int64_t of_sample = wino.tiles_h * wino.tiles_w, t = tile % of_sample;
    return {tile / of_sample, t / wino.tiles_w * out_side, t % wino.tiles_w * out_side};
  }
};

// One block of channels of the chunk's tiles: d to Bᵗ d B.
void transform_inputs(const Work& work, int64_t block, const float* in, float* to) {
  const Window& w = work.w;
  const int64_t point_stride = work.wino.in_blocks * work.wino.chunk * width;
  to += block * work.wino.chunk * width;
  alignas(64) float patch[in_side * in_side * width];
  alignas(64) float half[in_side * in_side * width];
  for (int64_t t = 0; t < work.count; ++t, to += width) {
    const TilePlace at = work.place(work.first + t);
    const float* from = in + (at.sample * work.wino.in_blocks + block) * work.in_block;
    const int64_t y0 = at.y - w.pad_top, x0 = at.x - w.pad_left;
    const float* d = from + (y0 * w.w + x0) * width;
    int64_t pitch = w.w * width;
    if (y0 < 0 || x0 < 0 || y0 + in_side > w.h || x0 + in_side > w.w) {  // it hangs over: zeros there
      for (int64_t y = 0; y < in_side; ++y) {
        for (int64_t x = 0; x < in_side; ++x) {
          const bool is_there = y0 + y >= 0 && y0 + y < w.h && x0 + x >= 0 && x0 + x < w.w;
          store(patch + (y * in_side + x) * width, is_there ? load(d + y * pitch + x * width) : zeros());
        }
      }
      d = patch;
      pitch = in_side * width;
    }
    for (int64_t x = 0; x < in_side; ++x) {
      Packet column[in_side], result[in_side];
#pragma GCC unroll 6
      for (int y = 0; y < in_side; ++y) column[y] = load(d + y * pitch + x * width);
      transform_in(column, result);
#pragma GCC unroll 6
      for (int y = 0; y < in_side; ++y) store(half + (y * in_side + x) * width, result[y]);
    }
    for (int64_t y = 0; y < in_side; ++y) {
      Packet row[in_side], result[in_side];
#pragma GCC unroll 6
      for (int x = 0; x < in_side; ++x) row[x] = load(half + (y * in_side + x) * width);
      transform_in(row, result);
#pragma GCC unroll 6
      for (int x = 0; x < in_side; ++x) store(to + (y * in_side + x) * point_stride, result[x]);
    }
  }
}

struct Ending {
  const float* bias;  // of the block, a whole vector
  const EpilogueHead& head;
  const Epilogue& rest;
  float* output;  // of the call
};

// One block of output channels of the chunk's tiles: M to Aᵗ M A.
void transform_outputs(const Work& work, int64_t block, const float* from, const Ending& ending) {
  const Window& w = work.w;
  const int64_t point_stride = work.wino.out_blocks * work.wino.chunk * width;
  from += block * work.wino.chunk * width;
  const Packet bias = load(ending.bias), low = broadcast(ending.head.low), high = broadcast(ending.head.high);
  alignas(64) float half[out_side * in_side * width];
  for (int64_t t = 0; t < work.count; ++t, from += width) {
    const TilePlace at = work.place(work.first + t);
    for (int64_t x = 0; x < in_side; ++x) {
      Packet column[in_side], result[out_side];
#pragma GCC unroll 6
      for (int y = 0; y < in_side; ++y) column[y] = load(from + (y * in_side + x) * point_stride);
      transform_out(column, result);
#pragma GCC unroll 4
      for (int y = 0; y < out_side; ++y) store(half + (y * in_side + x) * width, result[y]);
    }
    const int64_t rows = std::min<int64_t>(out_side, w.out_h - at.y),
                  columns = std::min<int64_t>(out_side, w.out_w - at.x);
    const int64_t first = (at.sample * work.wino.out_blocks + block) * work.out_block + (at.y * w.out_w + at.x) * width;
    for (int64_t y = 0; y < rows; ++y) {
      Packet row[in_side], result[out_side];
#pragma GCC unroll 6
      for (int x = 0; x < in_side; ++x) row[x] = load(half + (y * in_side + x) * width);
      transform_out(row, result);
      float* to = ending.output + first + y * w.out_w * width;
      const float* operand = ending.head.operand == nullptr ? nullptr : ending.head.operand + (to - ending.output);
#pragma GCC unroll 4
      for (int x = 0; x < out_side; ++x) {
        if (x >= columns) break;
        Packet sum = add(result[x], bias);
        if (operand != nullptr) sum = add(sum, load(operand + x * width));
        store(to + x * width, at_most(at_least(sum, low), high));
      }
      if (!ending.rest.empty()) ending.rest.apply(ending.output, to - ending.output, columns * width);
    }
  }
}

// Product `point` of the 36, for one panel of filters.
void multiply_point(const Work& work, int64_t point, int64_t panel, const std::vector<int64_t>& offsets,
                    const float* weights, const float* in, float* out) {
  const Winograd& wino = work.wino;
  const int64_t filter = panel * panel_width;
  TileShared shared{};
  shared.offsets = offsets.data();
  shared.steps = wino.in_blocks;
  shared.last_lanes = work.w.channels - (wino.in_blocks - 1) * width;
  shared.full_steps = shared.last_lanes == width ? wino.in_blocks : wino.in_blocks - 1;
  shared.vectors = work.w.out_channels - filter > width ? 2 : 1;
  shared.panel = weights + point * wino.panel_floats + filter * work.w.channels;
  shared.out_stride = wino.chunk * width;
  shared.low = -std::numeric_limits<float>::infinity();
  shared.high = std::numeric_limits<float>::infinity();
  const float* next_panel =
      shared.panel + shared.vectors * width * work.w.channels;  // of the next point after the last
  in += point * wino.in_blocks * wino.chunk * width;
  out += (point * wino.out_blocks + panel * tile_vectors) * wino.chunk * width;
  const ScalarPanels cut = scalar_panels(work.count, most_tile_rows);
  for (int64_t i = 0; i < cut.count; ++i) {
    const int64_t at = cut.begin(i) * width;
    const int pixels = static_cast<int>(cut.rows_of(i));
    shared.next_panel = i == 0 && cut.count > 1 ? shared.panel : next_panel;
    blocked_tile(1, pixels, shared.vectors)(shared, {in + at, out + at, nullptr, 1, pixels});
  }
}

void run(const KernelCall& call) {
  const Window w = window_of(*call.desc);
  Work work{w, winograd_of(w, level), w.h * w.w * width, w.out_pixels() * width};
  const Winograd& wino = work.wino;
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  float* in = workspace(call);
  float* out = in + Winograd::points * wino.in_blocks * wino.chunk * width;
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < wino.in_blocks; ++b) offsets.push_back(b * wino.chunk * width);
  const int64_t panels = (w.out_channels + panel_width - 1) / panel_width;
  for (work.first = 0; work.first < wino.tiles; work.first += work.count) {
    // As equal as can be: a short last chunk would read all weights for little.
    const int64_t left = wino.tiles - work.first, chunks = (left + wino.chunk - 1) / wino.chunk;
    work.count = (left + chunks - 1) / chunks;
    parallel_for(call, wino.in_blocks, [&](int64_t b) { transform_inputs(work, b, input(call, 0), in); });
    parallel_for(call, Winograd::points * panels,
                 [&](int64_t i) { multiply_point(work, i / panels, i % panels, offsets, input(call, 1), in, out); });
    parallel_for(call, wino.out_blocks, [&](int64_t b) {
      alignas(64) float of_block[width] = {};
      if (bias != nullptr)
        std::copy_n(bias + b * width, std::min<int64_t>(width, w.out_channels - b * width), of_block);
      transform_outputs(work, b, out, {of_block, head, epilogue, output(call)});
    });
  }
}

// G g Gᵗ in double precision, rounded once; then vector panels over the channels for each of the 36.
void pack(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  constexpr double g[in_side][3] = {{1.0 / 4, 0, 0},
                                    {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                    {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                    {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                    {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                    {0, 0, 1}};
  const Window w = window_of(desc);
  const int64_t point_floats = w.channels * round_up(w.out_channels, width);
  const auto* weights = static_cast<const float*>(raw);
  auto* to = static_cast<float*>(packed);
  std::fill_n(to, Winograd::points * point_floats, 0.0f);
  for (int64_t f = 0; f < w.out_channels; ++f) {
    const int64_t f0 = f / panel_width * panel_width;
    const int64_t lanes = w.out_channels - f0 > width ? panel_width : width;
    for (int64_t c = 0; c < w.channels; ++c) {
      const float* filter = weights + (f * w.channels + c) * 9;
      double half[in_side][3];
      for (int i = 0; i < in_side; ++i) {
        for (int j = 0; j < 3; ++j)
          half[i][j] = g[i][0] * filter[j] + g[i][1] * filter[3 + j] + g[i][2] * filter[6 + j];
      }
      for (int i = 0; i < in_side; ++i) {
        for (int j = 0; j < in_side; ++j) {
          const double u = half[i][0] * g[j][0] + half[i][1] * g[j][1] + half[i][2] * g[j][2];
          to[(i * in_side + j) * point_floats + f0 * w.channels + c * lanes + f - f0] = static_cast<float>(u);
        }
      }
    }
  }
}

}  // namespace

const KernelCode code::conv_winograd = {run, pack};

}  // namespace nlsplit::inline kernels
