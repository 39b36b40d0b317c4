// Where buffers go in an arena: greedy by size, best fit among the gaps left by those that live at the same time.
// Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020, section 4.2 (greedy by size for
// offsets).
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace nlsplit {

inline constexpr int64_t arena_alignment = 64;  // bytes: a cache line, and the widest vector

struct Lifetime {
  Bytes size;
  int64_t first = 0;  // first and last moment it is needed, both inclusive
  int64_t last = 0;
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // bytes, aligned, one for each lifetime
  Bytes size;
};

ArenaPlan plan_arena(std::span<const Lifetime> lifetimes);

}  // namespace nlsplit
