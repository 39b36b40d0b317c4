// A tensor [N, C, H, W] or [N, C, L] in blocks of channels, as loops go over it.
#pragma once

#include <algorithm>

#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

struct BlockExtents {
  int64_t batch, channels, pixels, blocks;
  int64_t lanes_of(int64_t block) const { return std::min<int64_t>(width, channels - block * width); }
};
inline BlockExtents block_extents_of(const TensorType& type) {
  const Shape& shape = type.shape;
  int64_t pixels = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) pixels *= shape[axis];
  return {shape[0], shape[1], pixels, (shape[1] + width - 1) / width};
}

}  // namespace nlsplit::inline kernels
