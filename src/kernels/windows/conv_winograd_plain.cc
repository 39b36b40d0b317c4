// 3x3 convolutions of row-major tensors by F(4x4, 3x3), with weights that become known only at run time: Conv, and
// ConvTranspose, which is a Conv by its weights turned over. Operand and result go through blocks of channels, some
// samples at a time; weights are transformed in vectors of filters.
#include <algorithm>

#include "kernels/layout.h"
#include "kernels/products/microkernel.h"
#include "kernels/windows/rows_to_pixels.h"
#include "kernels/windows/winograd.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;
constexpr int taps = 9;

// G times a column of three.
inline void transform_filter(const Packet (&g)[3], Packet (&r)[winograd_in_side]) {
  const Packet sixth = broadcast(-1.0f / 6), small = broadcast(1.0f / 24), twelfth = broadcast(1.0f / 12);
  const Packet even = multiply(sixth, add(g[0], g[2])), odd = multiply(sixth, g[1]);
  const Packet far = multiply_add(broadcast(1.0f / 6), g[2], multiply(small, g[0])), between = multiply(twelfth, g[1]);
  r[0] = multiply(broadcast(0.25f), g[0]);
  r[1] = add(even, odd);
  r[2] = subtract(even, odd);
  r[3] = add(far, between);
  r[4] = subtract(far, between);
  r[5] = g[2];
}

// One vector of filters of one channel, tap after tap: to its place in each of the 36 matrices.
void put_filters(const float* filters, bool turned, float* to, int64_t point_floats) {
  Packet half[winograd_in_side][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    Packet column[3], result[winograd_in_side];
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const int tap = i * 3 + j;
      column[i] = load(filters + (turned ? taps - 1 - tap : tap) * width);
    }
    transform_filter(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < winograd_in_side; ++i) half[i][j] = result[i];
  }
  for (int i = 0; i < winograd_in_side; ++i) {
    Packet result[winograd_in_side];
    transform_filter(half[i], result);
#pragma GCC unroll 6
    for (int j = 0; j < winograd_in_side; ++j) store(to + (i * winograd_in_side + j) * point_floats, result[j]);
  }
}

// filter_stride, channel_stride: floats of the weights from one to the next, taps being neighbours.
void transform_weights(const KernelCall& call, const Window& w, bool turned, int64_t filter_stride,
                       int64_t channel_stride, float* to) {
  const int64_t point_floats = w.channels * round_up(w.out_channels, width);
  const int64_t blocks = (w.out_channels + width - 1) / width;
  parallel_for(call, blocks, [&](int64_t block) {
    const int64_t f = block * width, count = std::min<int64_t>(width, w.out_channels - f);
    const int64_t f0 = f / panel_width * panel_width;
    const int64_t lanes = w.out_channels - f0 > width ? panel_width : width;
    alignas(64) float filters[taps * width];
    for (int64_t c = 0; c < w.channels; ++c) {
      const float* rows[width];
      for (int64_t r = 0; r < count; ++r) rows[r] = input(call, 1) + (f + r) * filter_stride + c * channel_stride;
      rows_to_pixels(rows, count, taps, filters, width);
      put_filters(filters, turned, to + f0 * w.channels + c * lanes + f - f0, point_floats);
    }
  });
}

void run_with(const KernelCall& call, bool turned) {
  const PlainWinograd p = plain_winograd_of(*call.desc);
  const Window& whole = p.w;
  float* weights = workspace(call);
  float* in = weights + round_up(p.weights_floats(level), widest_vector);
  float* out = in + round_up(p.in_floats(level), widest_vector);
  float* scratch = out + round_up(p.out_floats(level), widest_vector);
  const int64_t each = whole.channels * taps;
  transform_weights(call, whole, turned, turned ? taps : each, turned ? whole.out_channels * taps : taps, weights);
  const Epilogue epilogue(call), nothing;
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  const int64_t in_blocks = blocks_of(whole.channels, level), out_blocks = blocks_of(whole.out_channels, level);
  const int64_t in_pixels = whole.h * whole.w, out_pixels = whole.out_pixels();
  for (int64_t sample = 0; sample < whole.batch; sample += p.samples) {
    Window w = whole;
    w.batch = std::min(p.samples, whole.batch - sample);
    parallel_for(call, w.batch * in_blocks, [&](int64_t i) {
      const int64_t s = i / in_blocks, c = i % in_blocks * width;
      const int64_t count = std::min<int64_t>(width, w.channels - c);
      const float* rows[width];
      for (int64_t r = 0; r < count; ++r) rows[r] = input(call, 0) + ((sample + s) * w.channels + c + r) * in_pixels;
      rows_to_pixels(rows, count, in_pixels, in + i * in_pixels * width, width);
    });
    winograd(call, w, {in, weights, bias, out, scratch}, {}, nothing);
    parallel_for(call, w.batch * out_blocks, [&](int64_t i) {
      const int64_t s = i / out_blocks, c = i % out_blocks * width;
      const int64_t count = std::min<int64_t>(width, w.out_channels - c);
      const int64_t first = ((sample + s) * w.out_channels + c) * out_pixels;
      float* rows[width];
      for (int64_t r = 0; r < count; ++r) rows[r] = output(call) + first + r * out_pixels;
      pixels_to_rows(out + i * out_pixels * width, out_pixels, count, rows);
      epilogue.apply(output(call), first, count * out_pixels);
    });
  }
}

void run_conv(const KernelCall& call) { run_with(call, false); }
void run_transpose(const KernelCall& call) { run_with(call, true); }

}  // namespace

const KernelCode code::conv_winograd_plain = {run_conv};
const KernelCode code::conv_transpose_winograd = {run_transpose};

}  // namespace nlsplit::inline kernels
