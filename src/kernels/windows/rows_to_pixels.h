// Rows, of channels say, turned into pixels of channels and back, in squares of registers.
#pragma once

#include <algorithm>

#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

// to[p * pixel_floats + r] = rows[r][p]. Up to pixel_floats rows: a pixel whose floats are whole vectors is filled up
// with zeros. Writes pixels * pixel_floats floats at most.
inline void rows_to_pixels(const float* const* rows, int64_t count, int64_t pixels, float* to, int64_t pixel_floats) {
  const int64_t end = pixels * pixel_floats;
  for (int64_t r0 = 0; r0 < pixel_floats; r0 += width) {
    const int64_t room = pixel_floats - r0;
    for (int64_t p = 0; p < pixels; p += width) {
      const int64_t part = std::min<int64_t>(width, pixels - p);
      Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
      for (int r = 0; r < width; ++r) {
        const bool is_there = r0 + r < count;
        const float* from = is_there ? rows[r0 + r] + p : nullptr;
        block.packet[r] = !is_there ? zeros() : part == width ? load(from) : load_part(from, part);
      }
      Eigen::internal::ptranspose(block);
#pragma GCC unroll 16
      for (int c = 0; c < width; ++c) {
        if (c >= part) break;
        const int64_t at = (p + c) * pixel_floats + r0;
        // Where one square holds all rows, what it has too much is overwritten by the next pixel.
        if (room >= width || (r0 == 0 && at + width <= end)) {
          store(to + at, block.packet[c]);
        } else {
          store_part(to + at, block.packet[c], room);
        }
      }
    }
  }
}

// The way back, of one vector a pixel: rows[r][p] = from[p * width + r].
inline void pixels_to_rows(const float* from, int64_t pixels, int64_t count, float* const* rows) {
  for (int64_t p = 0; p < pixels; p += width) {
    const int64_t part = std::min<int64_t>(width, pixels - p);
    Eigen::internal::PacketBlock<Packet, width> block;
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) block.packet[i] = i < part ? load(from + (p + i) * width) : zeros();
    Eigen::internal::ptranspose(block);
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) {
      if (i >= count) break;
      part == width ? store(rows[i] + p, block.packet[i]) : store_part(rows[i] + p, block.packet[i], part);
    }
  }
}

}  // namespace nlsplit::inline kernels
