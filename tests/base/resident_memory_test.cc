#include "base/resident_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>

namespace nlsplit {
namespace {

TEST(ResidentMemory, KnowsThePeakAndForgetsIt) {
  const int64_t before = peak_resident_bytes();
  ASSERT_GT(before, 0);
  constexpr int64_t size = 64 << 20;
  // Mapped, not allocated: an allocator, above all a sanitizer's, may keep what was freed.
  void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, size);
  ASSERT_EQ(munmap(block, size), 0);
  const int64_t with_block = peak_resident_bytes();
  EXPECT_GE(with_block, size);
  EXPECT_GE(with_block, before);

  // Some systems let nobody forget.
  const bool allowed = std::ofstream("/proc/self/clear_refs").is_open();
  forget_peak_resident();
  if (allowed) {
    EXPECT_LT(peak_resident_bytes(), with_block - size / 2);
  } else {
    EXPECT_GE(peak_resident_bytes(), with_block);
  }
}

}  // namespace
}  // namespace nlsplit
