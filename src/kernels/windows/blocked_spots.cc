#include "kernels/windows/blocked_spots.h"

#include "kernels/products/microkernel.h"

namespace nlsplit::inline kernels {

std::vector<Spot> spots_of(const Window& w, int64_t samples, int64_t image_sample, int64_t pixel_floats) {
  std::vector<Spot> spots;
  const bool flat = w.taps() == 1 && w.image_w == w.out_w;  // then the rows are one
  const int64_t out_h = flat ? 1 : w.out_h, out_w = flat ? w.out_pixels() : w.out_w;
  const int64_t out_sample = round_up(w.out_channels, width) * w.out_pixels();
  const ScalarPanels cut = scalar_panels(out_w, most_tile_rows);
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t image = s * image_sample, out = s * out_sample;
    for (int64_t y = 0; y < out_h; ++y) {
      if (2 * out_w <= most_tile_rows && y + 1 < out_h) {
        spots.push_back({image + y * w.image_w * pixel_floats, out + y * out_w * width, 2, static_cast<int>(out_w)});
        ++y;
        continue;
      }
      for (int64_t i = 0; i < cut.count; ++i) {
        const int64_t x = cut.begin(i);
        spots.push_back({image + (y * w.image_w + x) * pixel_floats, out + (y * out_w + x) * width, 1,
                         static_cast<int>(cut.rows_of(i))});
      }
    }
  }
  return spots;
}

Steps steps_of(const Window& w, int64_t channels, int64_t lanes, int64_t block_stride) {
  Steps steps;
  const int64_t blocks = (channels + lanes - 1) / lanes;
  steps.offsets.reserve(static_cast<size_t>(blocks * w.taps()));
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < w.kernel_h; ++i) {
      for (int64_t j = 0; j < w.kernel_w; ++j) steps.offsets.push_back(b * block_stride + w.tap_offset(i, j) * lanes);
    }
  }
  steps.last_lanes = channels - (blocks - 1) * lanes;
  steps.full_steps = (steps.last_lanes == lanes ? blocks : blocks - 1) * w.taps();
  return steps;
}

}  // namespace nlsplit::inline kernels
