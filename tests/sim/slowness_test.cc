#include "sim/slowness.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"

namespace nlsplit {
namespace {

TEST(Slowness, ByHand) {
  Slowness slow;
  EXPECT_EQ(end_of(slow, 1, 2), 3);
  slow_down(slow, 3, 2, 8);
  EXPECT_EQ(slow, (Slowness{{0, 1}, {2, 3}, {8, 1}}));
  EXPECT_DOUBLE_EQ(end_of(slow, 0, 1), 1);   // before
  EXPECT_DOUBLE_EQ(end_of(slow, 1, 2), 5);   // 1 s before, then 1 s that takes 3
  EXPECT_DOUBLE_EQ(end_of(slow, 2, 2), 8);   // all of it within
  EXPECT_DOUBLE_EQ(end_of(slow, 1, 4), 9);   // 1 s, 6 s for 2, 1 s
  EXPECT_DOUBLE_EQ(end_of(slow, 8, 4), 12);  // after
  EXPECT_DOUBLE_EQ(done_between(slow, 1, 9), 4);
  EXPECT_DOUBLE_EQ(done_between(slow, 3, 3), 0);
}

TEST(Slowness, OverlappingOnesMultiply) {
  Slowness slow;
  slow_down(slow, 2, 1, 5);
  slow_down(slow, 3, 3, std::numeric_limits<double>::infinity());
  EXPECT_EQ(slow, (Slowness{{0, 1}, {1, 2}, {3, 6}, {5, 3}}));
}

// What is done until something ends is what it was, whatever happened.
TEST(Slowness, EndAndDoneAreInverse) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Slowness slow;
    for (uint64_t i = random.below(5); i > 0; --i) {
      const double from = random.uniform(0, 10);
      slow_down(slow, random.uniform(1, 5), from, from + random.uniform(0, 5));
    }
    const double now = random.uniform(0, 12), work = random.uniform(0, 8);
    const double end = end_of(slow, now, work);
    EXPECT_GE(end, now + work - 1e-12) << seed;
    EXPECT_NEAR(done_between(slow, now, end), work, 1e-12) << seed;
  }
}

}  // namespace
}  // namespace nlsplit
