// Memory that is gone ends a process with a message and exit code 3.
#include "base/memory_faults.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <new>
#include <string>

#include "base/file.h"
#include "base/mapped_file.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

// The sum of a mapped file's bytes, the file being cut to `left` bytes in between.
int read_while_it_shrinks(const std::string& path, size_t left) {
  catch_memory_faults();
  before_a_memory_fault_ends_it([](const char* why) { std::fprintf(stderr, "last words: %s\n", why); });
  const auto file = MappedFile::open(path);
  if (!file.ok()) return 1;
  fs::resize_file(path, left);
  volatile int sum = 0;
  for (const char c : (*file)->bytes()) sum = sum + c;
  return 0;
}

TEST(MemoryFaultsDeathTest, AFileTruncatedInUseIsNamed) {
  const std::string path = fs::temp_directory_path() / ("memory-faults-test-" + std::to_string(::getpid()));
  ASSERT_TRUE(write_file(path, std::string(100'000, 'x')).ok());
  EXPECT_EXIT(::_exit(read_while_it_shrinks(path, 10)), ::testing::ExitedWithCode(3),
              "error: '.*memory-faults-test-[0-9]+' was truncated while it was in use, or its disk failed\n"
              "last words: a file that it had mapped was truncated");
  ASSERT_TRUE(write_file(path, std::string(100'000, 'x')).ok());
  EXPECT_EXIT(::_exit(read_while_it_shrinks(path, 100'000)), ::testing::ExitedWithCode(0), "");
  fs::remove(path);
}

TEST(MemoryFaults, KnowWhichFileIsWhere) {
  const std::string path = fs::temp_directory_path() / ("memory-faults-test-" + std::to_string(::getpid()));
  ASSERT_TRUE(write_file(path, "some bytes").ok());
  const char* where = nullptr;
  for (int again = 0; again < 3; ++again) {
    const auto first = MappedFile::open(path), second = MappedFile::open(path);
    ASSERT_TRUE(first.ok() && second.ok());
    where = (*first)->bytes().data();
    ASSERT_NE(mapped_file_at(where), nullptr);
    EXPECT_EQ(mapped_file_at(where), path);
    EXPECT_EQ(mapped_file_at((*second)->bytes().data() + 9), path);
    EXPECT_EQ(mapped_file_at(&where), nullptr);
  }
  EXPECT_EQ(mapped_file_at(where), nullptr) << "no longer";
  fs::remove(path);
}

// Sanitizers have allocators of their own, and answer themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int ask_for_too_much() {
  catch_memory_faults();
  const rlimit limit{size_t{1} << 30, size_t{1} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
  volatile char* taken = new char[size_t{2} << 30];
  return taken[0];
}

TEST(MemoryFaultsDeathTest, AnAllocationThatIsRefusedIsSaid) {
  EXPECT_EXIT(::_exit(ask_for_too_much()), ::testing::ExitedWithCode(3),
              "error: out of memory: the system refuses to give this process more; it holds [0-9]+ MiB");
}
#endif

}  // namespace
}  // namespace nlsplit
