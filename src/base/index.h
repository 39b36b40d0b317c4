// Stages, devices, slots and micro-batches are ints; vectors want size_t.
#pragma once

#include <cstddef>

namespace nlsplit::inline base {

inline size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace nlsplit::inline base
