#include "kernels/generated/compiled.h"

namespace nlsplit::inline kernels {

LoopParts parts_of(const Loops& loops) {
  constexpr int64_t few = 8;
  LoopParts parts;
  if (!loops.folds.empty()) {
    parts.outer = loops.rows - 1;
  } else {
    parts.unrolled = loops.axes >= 2 && loops.extents[static_cast<size_t>(loops.axes) - 1] <= few ? 1 : 0;
    parts.outer = loops.axes - 1 - parts.unrolled;
  }
  for (int axis = 0; axis < (parts.outer == 0 ? 1 : parts.outer); ++axis)
    parts.count *= loops.extents[static_cast<size_t>(axis)];
  return parts;
}

}  // namespace nlsplit::inline kernels
