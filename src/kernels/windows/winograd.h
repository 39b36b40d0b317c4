// Convolutions of 3x3 by F(4x4, 3x3): kernels/layout.h (Winograd) has the source and what lies where. The points are
// 0, 1, -1, 2, -2 and infinity:
//   Y = Aᵗ [ (G g Gᵗ) ⊙ (Bᵗ d B) ] A     for a tile d of 6 × 6, a filter g of 3 × 3, a result Y of 4 × 4.
// The ⊙ over all channels are 36 products, done by the same register tiles as the direct convolutions.
#pragma once

#include "kernels/functions/epilogue.h"
#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {

inline constexpr int winograd_in_side = 6, winograd_out_side = 4;

// Bᵗ times a column of six.
inline void transform_in(const Packet (&d)[winograd_in_side], Packet (&r)[winograd_in_side]) {
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
inline void transform_out(const Packet (&m)[winograd_in_side], Packet (&r)[winograd_out_side]) {
  const Packet two = broadcast(2), four = broadcast(4), eight = broadcast(8);
  const Packet a = add(m[1], m[2]), b = subtract(m[1], m[2]), c = add(m[3], m[4]), d = subtract(m[3], m[4]);
  r[0] = add(add(m[0], a), c);
  r[1] = multiply_add(two, d, b);
  r[2] = multiply_add(four, c, a);
  r[3] = add(multiply_add(eight, d, b), m[5]);
}

// A tile by its first output pixel.
struct WinogradPlace {
  int64_t sample, y, x;  // of its first output pixel
};

struct WinogradWork {
  Window w;
  Winograd wino;
  int64_t in_block, out_block;   // floats of a block of channels
  int64_t first = 0, count = 0;  // the tiles of this chunk

  WinogradPlace place(int64_t tile) const {
    const int64_t of_sample = wino.tiles_h * wino.tiles_w, t = tile % of_sample;
    return {tile / of_sample, t / wino.tiles_w * winograd_out_side, t % wino.tiles_w * winograd_out_side};
  }
};

// Of one block of channels the chunk's tiles: d to Bᵗ d B. in: all samples in blocks of channels.
void winograd_inputs(const WinogradWork& work, int64_t block, const float* in, float* to);

// A whole convolution from blocks of channels to blocks of channels.
struct WinogradCall {
  const float* in;
  const float* weights;  // G g Gᵗ as vector panels over the channels, for each of the 36
  const float* bias;     // or null
  float* out;
  float* scratch;  // Winograd::scratch_floats
};
void winograd(const KernelCall& call, const Window& window, const WinogradCall& operands, const EpilogueHead& head,
              const Epilogue& rest);

}  // namespace nlsplit::inline kernels
