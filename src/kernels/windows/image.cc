#include "kernels/windows/image.h"

#include <algorithm>
#include <cstring>

#include "kernels/module/packets.h"
#include "kernels/windows/blocked_image.h"

namespace nlsplit::inline kernels {

bool reads_phase(int64_t kernel, int64_t dilation, int64_t stride, int64_t phase) {
  for (int64_t i = 0; i < kernel; ++i) {
    if (i * dilation % stride == phase) return true;
  }
  return false;
}

IndexRange inside(int64_t start, int64_t stride, int64_t extent, int64_t count) {
  const int64_t begin = start >= 0 ? 0 : (-start + stride - 1) / stride;
  const int64_t end = extent <= start ? 0 : (extent - start + stride - 1) / stride;
  return {std::min(begin, count), std::clamp(end, std::min(begin, count), count)};
}

void make_image(const Window& w, const float* plane, float fill, float* image) {
  for (int64_t phase_y = 0; phase_y < w.stride_h; ++phase_y) {
    const bool rows_read = reads_phase(w.kernel_h, w.dilation_h, w.stride_h, phase_y);
    const IndexRange rows = inside(phase_y - w.pad_top, w.stride_h, w.h, w.image_h);
    for (int64_t phase_x = 0; phase_x < w.stride_w; ++phase_x) {
      float* to = image + (phase_y * w.stride_w + phase_x) * w.image_h * w.image_w;
      if (!rows_read || !reads_phase(w.kernel_w, w.dilation_w, w.stride_w, phase_x)) continue;
      const int64_t start = phase_x - w.pad_left;
      const IndexRange columns = inside(start, w.stride_w, w.w, w.image_w);
      for (int64_t y = 0; y < w.image_h; ++y, to += w.image_w) {
        if (y < rows.begin || y >= rows.end) {
          std::fill(to, to + w.image_w, fill);
          continue;
        }
        const float* from = plane + (y * w.stride_h + phase_y - w.pad_top) * w.w + start;
        std::fill(to, to + columns.begin, fill);
        if (w.stride_w == 1) {
          std::copy(from + columns.begin, from + columns.end, to + columns.begin);
        } else if (w.stride_w == 2) {
          for (int64_t x = columns.begin; x < columns.end; ++x) to[x] = from[2 * x];
        } else {
          for (int64_t x = columns.begin; x < columns.end; ++x) to[x] = from[x * w.stride_w];
        }
        std::fill(to + columns.end, to + w.image_w, fill);
      }
    }
  }
}

std::vector<float> counts_of(int64_t out, int64_t kernel, int64_t stride, int64_t extent, int64_t before, int64_t after,
                             bool with_pads) {
  std::vector<float> counts;
  const int64_t low = with_pads ? -before : 0, high = with_pads ? extent + after : extent;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * stride - before;
    const int64_t count = std::min(begin + kernel, high) - std::max(begin, low);
    counts.push_back(static_cast<float>(std::max<int64_t>(count, 0)));
  }
  return counts;
}

namespace {

template <int64_t pixel>
void make_image_of_pixels(const Window& w, const float* block, float* image) {
  const auto floats = [](int64_t pixels) { return static_cast<size_t>(pixels * pixel) * sizeof(float); };
  for (int64_t phase_y = 0; phase_y < w.stride_h; ++phase_y) {
    const bool rows_read = reads_phase(w.kernel_h, w.dilation_h, w.stride_h, phase_y);
    const IndexRange rows = inside(phase_y - w.pad_top, w.stride_h, w.h, w.image_h);
    for (int64_t phase_x = 0; phase_x < w.stride_w; ++phase_x) {
      float* to = image + (phase_y * w.stride_w + phase_x) * w.image_h * w.image_w * pixel;
      if (!rows_read || !reads_phase(w.kernel_w, w.dilation_w, w.stride_w, phase_x)) continue;
      const int64_t start = phase_x - w.pad_left;
      const IndexRange columns = inside(start, w.stride_w, w.w, w.image_w);
      for (int64_t y = 0; y < w.image_h; ++y, to += w.image_w * pixel) {
        if (y < rows.begin || y >= rows.end) {
          std::memset(to, 0, floats(w.image_w));
          continue;
        }
        const float* from = block + ((y * w.stride_h + phase_y - w.pad_top) * w.w + start) * pixel;
        std::memset(to, 0, floats(columns.begin));
        if (w.stride_w == 1) {
          std::memcpy(to + columns.begin * pixel, from + columns.begin * pixel, floats(columns.end - columns.begin));
        } else {
          for (int64_t x = columns.begin; x < columns.end; ++x)
            std::memcpy(to + x * pixel, from + x * w.stride_w * pixel, pixel * sizeof(float));
        }
        std::memset(to + columns.end * pixel, 0, floats(w.image_w - columns.end));
      }
    }
  }
}

}  // namespace

void make_blocked_image(const Window& w, const float* block, float* image) {
  make_image_of_pixels<width>(w, block, image);
}
void make_paired_image(const Window& w, const float* block, float* image) {
  make_image_of_pixels<width / 2>(w, block, image);
}

}  // namespace nlsplit::inline kernels
