#include "kernels/windows/pixel_columns.h"

#include <algorithm>

#include "kernels/layout.h"
#include "kernels/module/packets.h"
#include "kernels/products/microkernel.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;

// Neighbours in an image that are neighbours in the panel.
struct Stretch {
  int64_t from, to, count;
};

// By whole vectors: what is too much at the end is overwritten by the next stretch, row or panel.
inline void copy(const float* from, const Stretch& s, float* to) {
  for (int64_t i = 0; i < s.count; i += width) store(to + s.to + i, load(from + s.from + i));
}
inline void copy_exactly(const float* from, const Stretch& s, float* to) {
  int64_t i = 0;
  for (; i + width <= s.count; i += width) store(to + s.to + i, load(from + s.from + i));
  if (i < s.count) store(to + s.to + i, load_part(from + s.from + i, s.count - i));
}

void pack_pixels(const PanelPacker& self, int64_t column, int64_t columns, int64_t k0, int64_t k, float* to) {
  const auto& it = static_cast<const PixelColumns&>(self);
  Stretch stretches[panel_width];
  int64_t count = 0;
  for (int64_t done = 0; done < columns; ++count) {
    const int64_t at = column + done, x = at % it.row, y = at / it.row % it.rows, sample = at / (it.row * it.rows);
    const int64_t more = std::min(it.row - x, columns - done);
    stretches[count] = {sample * it.sample + y * it.pitch + x, done, more};
    done += more;
  }
  const int64_t wide = round_up(columns, width);
  const float* image = it.image;
  if (count == 1 && columns == panel_width) {
    for (int64_t i = k0; i < k0 + k; ++i, to += panel_width) {
      const float* from = image + it.offsets[i] + stretches[0].from;
      for (int v = 0; v < tile_vectors; ++v) {
        store(to + v * width, load(from + v * width));
        if (v * width % line_floats == 0) fetch(from + 3 * panel_width + v * width);  // of a panel to come
      }
    }
    return;
  }
  for (int64_t i = k0; i < k0 + k; ++i, to += wide) {
    const float* from = image + it.offsets[i];
    if (it.exact) {
      for (int64_t s = 0; s < count; ++s) copy_exactly(from, stretches[s], to);
    } else {
      for (int64_t s = 0; s < count; ++s) copy(from, stretches[s], to);
    }
    std::fill(to + columns, to + wide, 0.0f);
  }
}

}  // namespace

PixelColumns::PixelColumns() : PanelPacker{pack_pixels} {}

}  // namespace nlsplit::inline kernels
