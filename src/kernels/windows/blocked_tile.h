// The register tile of the blocked convolutions: up to most_tile_rows pixels times two blocks of output channels,
// summed over all of k before anything is stored. Pixels are read where they lie, one scalar at a time, weights as
// vector panels (kernels/layout.h). An element is one chain over k that starts from its bias, whatever the tile.
#pragma once

#include <cstdint>

#include "kernels/functions/epilogue.h"

namespace nlsplit::inline kernels {

// What many tiles share.
struct TileShared {
  const int64_t* offsets;  // of each step of k, from a tile's image; a step is a block of channels at one tap
  int64_t steps;
  int64_t full_steps;  // the first so many have all lanes of their block, the others
  int64_t last_lanes;  // so many
  int64_t pitch;       // from one row of the image to the next
  const float* panel;  // weights of `vectors` blocks of output channels
  int vectors;         // 1 or 2
  const float* bias;   // of these channels, a whole vector for each block; null: none
  int64_t out_stride;  // between two blocks of output channels
  float low, high;     // results are clamped; infinities do nothing
  // What is fetched into the caches meanwhile, both from memory that may lie far away: weights of the panel that comes
  // next, and the image so many floats further on. Its own panel and 0: nothing new.
  const float* next_panel;
  int64_t ahead;
};

struct TileAt {
  const float* image;
  float* out;
  const float* operand;  // added to the sum, laid out like out; null: none
  int rows;              // 1, or 2 where two whole rows of the output fit
  int pixels;            // of a row
};

using TileFunction = void (*)(const TileShared& shared, const TileAt& at);

// For an image in blocks of channels (a pixel is vector_width floats), or row-major (a pixel is one float, a block one
// channel).
TileFunction blocked_tile(int rows, int pixels, int vectors);
TileFunction planar_tile(int rows, int pixels, int vectors);

}  // namespace nlsplit::inline kernels
