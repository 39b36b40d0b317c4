#include "graph/memory.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace nlsplit {

ArenaPlan plan_arena(std::span<const Lifetime> lifetimes) {
  const auto aligned = [](Bytes size) {
    return (size.value() + arena_alignment - 1) / arena_alignment * arena_alignment;
  };
  std::vector<size_t> by_size(lifetimes.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].size > lifetimes[b].size; });

  ArenaPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> placed;  // by offset
  int64_t end = 0;
  for (const size_t next : by_size) {
    const Lifetime& life = lifetimes[next];
    const int64_t size = aligned(life.size);
    // The smallest gap between buffers that live at the same time, else behind the last of them.
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), free_from = 0;
    for (const size_t other : placed) {
      if (lifetimes[other].last < life.first || life.last < lifetimes[other].first) continue;
      const int64_t gap = plan.offsets[other] - free_from;
      if (gap >= size && gap < best_gap) {
        best = free_from;
        best_gap = gap;
      }
      free_from = std::max(free_from, plan.offsets[other] + aligned(lifetimes[other].size));
    }
    plan.offsets[next] = best >= 0 ? best : free_from;
    end = std::max(end, plan.offsets[next] + size);
    const auto behind = std::upper_bound(placed.begin(), placed.end(), next,
                                         [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; });
    placed.insert(behind, next);
  }
  plan.size = bytes(end);
  return plan;
}

}  // namespace nlsplit
