// The gradient of a 3x3 convolution by its weights by F(3x3, 4x4): a tile of 4 × 4 of dy slides over one of 6 × 6 of x,
// and what comes out is 3 × 3. The points are those of kernels/windows/winograd.h, so x is transformed as there:
//   dW = Aᵗ [ Σ (G dy Gᵗ) ⊙ (Bᵗ x B) ] A    with the sum over all tiles of all samples, in their order.
// The sums are 36 products of filters by channels: an element of one of these is one chain.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/layout.h"
#include "kernels/products/microkernel.h"
#include "kernels/windows/rows_to_pixels.h"
#include "kernels/windows/winograd.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int dy_side = 4, dw_side = 3, taps = 9;
// Filters of a tile: as many of a block as leave registers for two vectors of channels each.
constexpr int tile_filters = width >= 8 ? width / 2 : width;

// G times a column of four.
inline void transform_dy(const Packet (&d)[dy_side], Packet (&r)[winograd_in_side]) {
  const Packet sixth = broadcast(-1.0f / 6), small = broadcast(1.0f / 24), twelfth = broadcast(1.0f / 12);
  const Packet even = multiply(sixth, add(d[0], d[2])), odd = multiply(sixth, add(d[1], d[3]));
  const Packet far = multiply_add(broadcast(1.0f / 6), d[2], multiply(small, d[0]));
  const Packet between = multiply_add(broadcast(1.0f / 3), d[3], multiply(twelfth, d[1]));
  r[0] = multiply(broadcast(0.25f), d[0]);
  r[1] = add(even, odd);
  r[2] = subtract(even, odd);
  r[3] = add(far, between);
  r[4] = subtract(far, between);
  r[5] = d[3];
}

// Aᵗ times a column of six.
inline void transform_dw(const Packet (&m)[winograd_in_side], Packet (&r)[dw_side]) {
  const Packet two = broadcast(2), four = broadcast(4);
  const Packet a = add(m[1], m[2]), b = subtract(m[1], m[2]), c = add(m[3], m[4]), d = subtract(m[3], m[4]);
  r[0] = add(add(m[0], a), c);
  r[1] = multiply_add(two, d, b);
  r[2] = add(multiply_add(four, c, a), m[5]);
}

// Of one block of filters the chunk's tiles of dy: d to G d Gᵗ.
void transform_gradients(const WinogradWork& work, int64_t block, const float* dy, float* to) {
  const Window& w = work.w;
  const int64_t point_stride = work.wino.out_blocks * work.wino.chunk * width;
  to += block * work.wino.chunk * width;
  Packet half[winograd_in_side][dy_side];
  for (int64_t t = 0; t < work.count; ++t, to += width) {
    const WinogradPlace at = work.place(work.first + t);
    const float* from =
        dy + (at.sample * work.wino.out_blocks + block) * work.out_block + (at.y * w.out_w + at.x) * width;
    const int64_t rows = std::min<int64_t>(dy_side, w.out_h - at.y),
                  columns = std::min<int64_t>(dy_side, w.out_w - at.x);
#pragma GCC unroll 4
    for (int x = 0; x < dy_side; ++x) {
      Packet column[dy_side], result[winograd_in_side];
#pragma GCC unroll 4
      for (int y = 0; y < dy_side; ++y)
        column[y] = y < rows && x < columns ? load(from + (y * w.out_w + x) * width) : zeros();
      transform_dy(column, result);
#pragma GCC unroll 6
      for (int y = 0; y < winograd_in_side; ++y) half[y][x] = result[y];
    }
    for (int y = 0; y < winograd_in_side; ++y) {
      Packet result[winograd_in_side];
      transform_dy(half[y], result);
#pragma GCC unroll 6
      for (int x = 0; x < winograd_in_side; ++x) store(to + (y * winograd_in_side + x) * point_stride, result[x]);
    }
  }
}

// Some filters by one or two blocks of channels, over `count` tiles. Blocks are `block` floats apart.
template <int vectors>
void sum_tile(const float* dy, const float* x, int64_t block, int64_t count, bool first, float* sums, int64_t stride) {
  Packet sum[tile_filters * vectors];
#pragma GCC unroll 16
  for (int i = 0; i < tile_filters * vectors; ++i)
    sum[i] = first ? zeros() : load(sums + i / vectors * stride + i % vectors * width);
  for (int64_t t = 0; t < count; ++t, dy += width, x += width) {
    Packet channels[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) channels[v] = load(x + v * block);
#pragma GCC unroll 16
    for (int r = 0; r < tile_filters; ++r) {
      const Packet scalar = broadcast(dy[r]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r * vectors + v] = multiply_add(scalar, channels[v], sum[r * vectors + v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < tile_filters * vectors; ++i) store(sums + i / vectors * stride + i % vectors * width, sum[i]);
}

// Planes of some samples to blocks of channels.
void to_blocks(const KernelCall& call, const float* planes, int64_t samples, int64_t channels, int64_t pixels,
               float* to) {
  const int64_t blocks = blocks_of(channels, level);
  parallel_for(call, samples * blocks, [&](int64_t i) {
    const int64_t s = i / blocks, c = i % blocks * width, count = std::min<int64_t>(width, channels - c);
    const float* rows[width];
    for (int64_t r = 0; r < count; ++r) rows[r] = planes + (s * channels + c + r) * pixels;
    rows_to_pixels(rows, count, pixels, to + i * pixels * width, width);
  });
}

// One filter's sums to [channel][tap].
void put_filter(const WinogradWork& work, const float* sums, int64_t point_floats, float* to) {
  const int64_t channels = work.w.channels;
  for (int64_t c = 0; c < channels; c += width) {
    Packet half[dw_side][winograd_in_side];
    for (int x = 0; x < winograd_in_side; ++x) {
      Packet column[winograd_in_side], result[dw_side];
#pragma GCC unroll 6
      for (int y = 0; y < winograd_in_side; ++y) column[y] = load(sums + (y * winograd_in_side + x) * point_floats + c);
      transform_dw(column, result);
#pragma GCC unroll 3
      for (int y = 0; y < dw_side; ++y) half[y][x] = result[y];
    }
    alignas(64) float each[taps * width];
    for (int y = 0; y < dw_side; ++y) {
      Packet result[dw_side];
      transform_dw(half[y], result);
#pragma GCC unroll 3
      for (int x = 0; x < dw_side; ++x) store(each + (y * dw_side + x) * width, result[x]);
    }
    const int64_t count = std::min<int64_t>(width, channels - c);
    for (int64_t i = 0; i < count; ++i) {
      for (int tap = 0; tap < taps; ++tap) to[(c + i) * taps + tap] = each[tap * width + i];
    }
  }
}

void run(const KernelCall& call) {
  const PlainWinograd p = plain_winograd_of(*call.desc);
  float* sums = workspace(call);
  float* x = sums + round_up(p.weights_floats(level), widest_vector);
  float* dy = x + round_up(p.in_floats(level), widest_vector);
  float* x_tiles = dy + round_up(p.out_floats(level), widest_vector);
  const int64_t channels = p.w.channels, filters = p.w.out_channels;
  const int64_t in_pixels = p.w.h * p.w.w, out_pixels = p.w.out_pixels();
  const int64_t stride = round_up(channels, width), point_floats = round_up(filters, width) * stride;
  WinogradWork work;
  bool first = true;
  for (int64_t sample = 0; sample < p.w.batch; sample += p.samples) {
    work.w = p.w;
    work.w.batch = std::min(p.samples, p.w.batch - sample);
    work.wino = p.winograd(work.w.batch, level);
    work.in_block = in_pixels * width, work.out_block = out_pixels * width;
    const Winograd& wino = work.wino;
    float* dy_tiles = x_tiles + Winograd::points * wino.in_blocks * wino.chunk * width;
    to_blocks(call, input(call, 0) + sample * channels * in_pixels, work.w.batch, channels, in_pixels, x);
    to_blocks(call, input(call, 1) + sample * filters * out_pixels, work.w.batch, filters, out_pixels, dy);
    for (work.first = 0; work.first < wino.tiles; work.first += work.count) {
      work.count = std::min(wino.chunk, wino.tiles - work.first);
      parallel_for(call, wino.in_blocks, [&](int64_t b) { winograd_inputs(work, b, x, x_tiles); });
      parallel_for(call, wino.out_blocks, [&](int64_t b) { transform_gradients(work, b, dy, dy_tiles); });
      const int64_t block = wino.chunk * width, pairs = (wino.in_blocks + 1) / 2;
      parallel_for(call, Winograd::points * pairs, [&](int64_t i) {
        const int64_t point = i / pairs, c = i % pairs * 2;
        const float* from = x_tiles + (point * wino.in_blocks + c) * block;
        for (int64_t f = 0; f < wino.out_blocks * width; f += tile_filters) {
          const float* scalars = dy_tiles + (point * wino.out_blocks + f / width) * block + f % width;
          float* to = sums + point * point_floats + f * stride + c * width;
          if (c + 1 < wino.in_blocks) {
            sum_tile<2>(scalars, from, block, work.count, first, to, stride);
          } else {
            sum_tile<1>(scalars, from, block, work.count, first, to, stride);
          }
        }
      });
      first = false;
    }
  }
  const Epilogue epilogue(call);
  parallel_for(call, filters, [&](int64_t f) {
    put_filter(work, sums + f * stride, point_floats, output(call) + f * channels * taps);
    epilogue.apply(output(call), f * channels * taps, channels * taps);
  });
}

}  // namespace

const KernelCode code::conv_weight_gradient_winograd = {run};

}  // namespace nlsplit::inline kernels
