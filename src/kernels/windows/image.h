// The image of a plane: what a sliding window reads (kernels/layout.h, Window).
#pragma once

#include <vector>

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

// Padded with `fill`; phases that no tap reads stay as they are. Not for windows that are in place.
void make_image(const Window& window, const float* plane, float fill, float* image);

// How many positions each window counts along an axis: those in the plane, or, with count_include_pad, in the padded
// plane.
std::vector<float> counts_of(int64_t out, int64_t kernel, int64_t stride, int64_t extent, int64_t before, int64_t after,
                             bool with_pads);

}  // namespace nlsplit::inline kernels
