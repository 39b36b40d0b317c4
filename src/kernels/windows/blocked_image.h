// The image of one block of channels: what a sliding window over a blocked tensor reads (kernels/layout.h, Window).
#pragma once

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

// Padded with zeros; phases that no tap reads stay as they are. Not for windows that are in place.
void make_blocked_image(const Window& window, const float* block, float* image);
// The same of halves, whose pixels take half as many floats.
void make_paired_image(const Window& window, const float* block, float* image);

// The indices i in [0, count) whose source position i * stride + start lies in [0, extent).
struct IndexRange {
  int64_t begin, end;
};
IndexRange inside(int64_t start, int64_t stride, int64_t extent, int64_t count);
// Does any tap along an axis fall into this phase?
bool reads_phase(int64_t kernel, int64_t dilation, int64_t stride, int64_t phase);

}  // namespace nlsplit::inline kernels
