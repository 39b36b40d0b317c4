#include "base/resident_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace nlsplit {
namespace {

TEST(ResidentMemory, KnowsThePeakAndForgetsIt) {
  const int64_t before = peak_resident_bytes();
  ASSERT_GT(before, 0);
  constexpr int64_t size = 64 << 20;
  {
    std::vector<char> block(size, 1);
    EXPECT_GE(peak_resident_bytes(), size);
    EXPECT_EQ(block.back(), 1);
  }
  const int64_t with_block = peak_resident_bytes();
  EXPECT_GE(with_block, before);
  forget_peak_resident();
  // Less than the block at least, unless the system lets nobody forget.
  const int64_t after = peak_resident_bytes();
  EXPECT_TRUE(after == with_block || after < with_block - size / 2) << after << " of " << with_block;
}

}  // namespace
}  // namespace nlsplit
