// Memory planner: offsets of buffers with lifetimes in an arena, so that buffers that live at the same time do not
// overlap and the arena is small.
//
//   const ArenaPlan plan = plan_arena(lifetimes);
//   plan.offsets[i];                 // bytes, aligned
//   plan.size.value();               // of the arena, at least plan.bound
//
// First greedy by size, best fit among the gaps left by those that live at the same time (Pisarchyk and Lee, "Efficient
// memory management for deep neural net inference", 2020, section 4.2). That reaches the bound on nearly all networks.
// Where it does not: the same in other orders (by size times lifetime, by beginning) and into the lowest gap; then a
// local repair of the best of these, which raises the buffers that stick out above the bound towards the front of the
// order, lets some change from the bottom to the top of their gaps, and places all again, until the bound is reached or
// a fixed number of tries is spent. The best is taken, so it is never worse than greedy by size. All of it is decided
// by the lifetimes alone, not by how fast a machine is.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace nlsplit::inline graph {

inline constexpr int64_t arena_alignment = 64;  // bytes: a cache line, and the widest vector

struct Lifetime {
  Bytes size;
  int64_t first = 0;  // first and last moment it is needed, both inclusive
  int64_t last = 0;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // bytes, aligned, one for each lifetime
  Bytes size;
  Bytes bound;  // live_bound of the lifetimes
};

// The largest sum of bytes that live at one moment, each buffer rounded up to the alignment: no arena is smaller.
Bytes live_bound(std::span<const Lifetime> lifetimes);

ArenaPlan plan_arena(std::span<const Lifetime> lifetimes);

// The first step alone: what the best is held against.
ArenaPlan plan_arena_by_size(std::span<const Lifetime> lifetimes);

}  // namespace nlsplit::inline graph
