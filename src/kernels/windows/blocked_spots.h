// What the direct convolutions in blocks of channels do in which order: tiles of the output's pixels, and steps of k.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

// A tile before it is known for which channels: where it reads (floats) and writes (elements), and its pixels in so
// many rows.
struct Spot {
  int64_t image, out;
  int rows, pixels;
};

// The pixels of `samples` samples in order. Two whole rows share a tile where both fit. A pixel of the image takes
// `pixel_floats`, samples are `image_sample` floats apart.
std::vector<Spot> spots_of(const Window& w, int64_t samples, int64_t image_sample, int64_t pixel_floats);

// Steps of k, from a tile's image: block of channels, then row and column of the filter. A block is `lanes` floats a
// pixel, of `channels` in all, and `block_stride` floats from the next one.
struct Steps {
  std::vector<int64_t> offsets;
  int64_t full_steps = 0, last_lanes = 0;  // the first so many have all lanes, the others so many
};
Steps steps_of(const Window& w, int64_t channels, int64_t lanes, int64_t block_stride);

}  // namespace nlsplit::inline kernels
