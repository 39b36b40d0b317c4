// Where a device's buffers lie in its arena.
#pragma once

#include <vector>

#include "program/program.h"

namespace nlsplit::inline compiler {

// First and last moment that touches a scratch buffer, in the work of its stage and phase.
struct ScratchLifetime {
  BufferId buffer;
  int64_t first = 0, last = 0;
};
// A computation may write `result` on the bytes of `held` (program/in_place.h). It does if that is the end of one and
// the beginning of the other, and the arena is no larger for it.
struct InPlace {
  BufferId result, held;
};
// What is needed all the time comes first, then messages, then scratch, which shares one region because the slots of a
// device run one after another (so computations never reuse the bytes of a message, nor wait for one because of them).
// lifetimes: a list for each stage and phase.
void place_buffers(DeviceProgram& device, const std::vector<std::vector<ScratchLifetime>>& lifetimes,
                   const std::vector<InPlace>& in_place);

}  // namespace nlsplit::inline compiler
