#include "kernels/windows/winograd.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/products/microkernel.h"
#include "kernels/windows/blocked_tile.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int in_side = winograd_in_side, out_side = winograd_out_side;
constexpr int64_t panel_width = tile_vectors * width;

struct WinogradEnding {
  const float* bias;  // of the block, a whole vector
  const EpilogueHead& head;
  const Epilogue& rest;
  float* output;  // of the call
};

// One block of output channels of the chunk's tiles: M to Aᵗ M A.
void winograd_outputs(const WinogradWork& work, int64_t block, const float* from, const WinogradEnding& ending) {
  const Window& w = work.w;
  const int64_t point_stride = work.wino.out_blocks * work.wino.chunk * width;
  from += block * work.wino.chunk * width;
  const Packet bias = load(ending.bias), low = broadcast(ending.head.low), high = broadcast(ending.head.high);
  alignas(64) float half[out_side * in_side * width];
  for (int64_t t = 0; t < work.count; ++t, from += width) {
    const WinogradPlace at = work.place(work.first + t);
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
void multiply_point(const WinogradWork& work, int64_t point, int64_t panel, const std::vector<int64_t>& offsets,
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

}  // namespace

void winograd_inputs(const WinogradWork& work, int64_t block, const float* in, float* to) {
  const Window& w = work.w;
  const int64_t point_stride = work.wino.in_blocks * work.wino.chunk * width;
  to += block * work.wino.chunk * width;
  alignas(64) float patch[in_side * in_side * width];
  alignas(64) float half[in_side * in_side * width];
  for (int64_t t = 0; t < work.count; ++t, to += width) {
    const WinogradPlace at = work.place(work.first + t);
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

void winograd(const KernelCall& call, const Window& w, const WinogradCall& operands, const EpilogueHead& head,
              const Epilogue& rest) {
  WinogradWork work{w, winograd_of(w, level), w.h * w.w * width, w.out_pixels() * width};
  const Winograd& wino = work.wino;
  const float* bias = operands.bias;
  float* in = operands.scratch;
  float* out = in + Winograd::points * wino.in_blocks * wino.chunk * width;
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < wino.in_blocks; ++b) offsets.push_back(b * wino.chunk * width);
  const int64_t panels = (w.out_channels + panel_width - 1) / panel_width;
  for (work.first = 0; work.first < wino.tiles; work.first += work.count) {
    // As equal as can be: a short last chunk would read all weights for little.
    const int64_t left = wino.tiles - work.first, chunks = (left + wino.chunk - 1) / wino.chunk;
    work.count = (left + chunks - 1) / chunks;
    parallel_for(call, wino.in_blocks, [&](int64_t b) { winograd_inputs(work, b, operands.in, in); });
    parallel_for(call, Winograd::points * panels,
                 [&](int64_t i) { multiply_point(work, i / panels, i % panels, offsets, operands.weights, in, out); });
    parallel_for(call, wino.out_blocks, [&](int64_t b) {
      alignas(64) float of_block[width] = {};
      if (bias != nullptr)
        std::copy_n(bias + b * width, std::min<int64_t>(width, w.out_channels - b * width), of_block);
      winograd_outputs(work, b, out, {of_block, head, rest, operands.out});
    });
  }
}

}  // namespace nlsplit::inline kernels
