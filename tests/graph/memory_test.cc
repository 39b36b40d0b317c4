// plan_arena: buffers that live at the same time never overlap, and the arena is not larger than it needs to be.
#include "graph/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace nlsplit {
namespace {

TEST(Memory, NothingNeedsNothing) {
  EXPECT_EQ(plan_arena({}).size, bytes(0));
  const std::vector<Lifetime> empty = {{bytes(0), 0, 5}, {bytes(0), 0, 5}};
  EXPECT_EQ(plan_arena(empty).size, bytes(0));
}

// A chain needs the largest neighbouring pair: 256 + 512.
TEST(Memory, ChainReuses) {
  const std::vector<Lifetime> chain = {{bytes(256), 0, 1}, {bytes(512), 1, 2}, {bytes(128), 2, 3}, {bytes(512), 3, 4}};
  const ArenaPlan plan = plan_arena(chain);
  EXPECT_EQ(plan.size, bytes(768));
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{512, 0, 512, 0}));
}

// Figure 5's situation in Pisarchyk and Lee: the small late buffers go into the best gap, not the first.
TEST(Memory, TakesTheSmallestGap) {
  const std::vector<Lifetime> buffers = {
      {bytes(1024), 0, 9},  // at 0
      {bytes(512), 0, 0},   // leaves 1024 to 1536 free afterwards, wide gap
      {bytes(448), 0, 9},   // behind it
      {bytes(384), 5, 9},   // fits the wide gap
  };
  const ArenaPlan plan = plan_arena(buffers);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 1024, 1536, 1024}));
  EXPECT_EQ(plan.size, bytes(1984));
}

TEST(Memory, RandomLifetimesNeverOverlap) {
  Random random(3);
  double ratio = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Lifetime> lifetimes(1 + random.below(60));
    for (Lifetime& life : lifetimes) {
      life.size = bytes(static_cast<int64_t>(random.below(5000)));
      life.first = static_cast<int64_t>(random.below(30));
      life.last = life.first + static_cast<int64_t>(random.below(8));
    }
    const ArenaPlan plan = plan_arena(lifetimes);
    ASSERT_EQ(plan.offsets.size(), lifetimes.size());
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      ASSERT_EQ(plan.offsets[i] % arena_alignment, 0);
      ASSERT_LE(plan.offsets[i] + lifetimes[i].size.value(), plan.size.value());
      for (size_t j = 0; j < i; ++j) {
        const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
        const bool apart = plan.offsets[i] + lifetimes[i].size.value() <= plan.offsets[j] ||
                           plan.offsets[j] + lifetimes[j].size.value() <= plan.offsets[i];
        ASSERT_TRUE(!together || apart) << "round " << round << ": " << i << " and " << j;
      }
    }
    int64_t floor = 1;  // what lives at the busiest moment
    for (int64_t t = 0; t < 40; ++t) {
      int64_t live = 0;
      for (const Lifetime& life : lifetimes) {
        if (life.first <= t && t <= life.last)
          live += (life.size.value() + arena_alignment - 1) / arena_alignment * arena_alignment;
      }
      floor = std::max(floor, live);
    }
    ASSERT_GE(plan.size.value(), floor - 1);
    ratio += static_cast<double>(plan.size.value()) / static_cast<double>(floor);
  }
  EXPECT_LT(ratio / rounds, 1.10) << "the paper finds greedy by size within a few percent of the bound";
}

}  // namespace
}  // namespace nlsplit
