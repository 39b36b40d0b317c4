// The image of a plane: what a sliding window reads (kernels/layout.h, Window).
#pragma once

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

// Padded with `fill`; phases that no tap reads stay as they are. Not for windows that are in place.
void make_image(const Window& window, const float* plane, float fill, float* image);

}  // namespace nlsplit::inline kernels
