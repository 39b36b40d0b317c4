#include "base/resident_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/mapped_file.h"

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

int64_t resident_pages() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

// The sum of all bytes: it looks at them.
int64_t sum_of(std::string_view bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

TEST(ResidentMemory, AMappedFileTakesNoneOnceItIsForgottenAndKeepsItsBytes) {
  constexpr int64_t size = 32 << 20;
  const std::string path = testing::TempDir() + "/forgotten";
  ASSERT_TRUE(write_file(path, std::string(size, 'x')).ok());
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  const std::string_view bytes = (*file)->bytes();
  ASSERT_EQ(sum_of(bytes), size * 'x');
  const int64_t looked_at = resident_pages(), pages_of_file = size / sysconf(_SC_PAGESIZE);
  forget_mapped(bytes.substr(1, bytes.size() - 2));
  EXPECT_LT(resident_pages(), looked_at - pages_of_file / 2);
  EXPECT_EQ(sum_of(bytes), size * 'x');

  std::string own(size, 'y');
  forget_mapped(own);  // is no file's
  EXPECT_EQ(sum_of(own), size * 'y');
}

}  // namespace
}  // namespace nlsplit
