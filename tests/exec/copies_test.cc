// What `nlbench profile` measures of copies, on backends whose copies are memcpy, done at once or late.
#include "exec/cuda/copies.h"

#include <gmock/gmock.h>

#include "exec/cuda/stand_in.h"
#include "exec/on_fake_gpu.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CopySizes small = {64 << 10, 4 << 20, 5};

void expect_possible(const Copies& copies) {
  for (const CopyLine& line : {copies.in, copies.out}) {
    EXPECT_GE(line.cost.latency, seconds(0));
    EXPECT_GT(line.cost.bandwidth, bytes_per_second(1e6));
    EXPECT_GE(line.largest_error, 0);
    EXPECT_LE(copies.both, line.cost.bandwidth);
  }
  EXPECT_GT(copies.both, bytes_per_second(0));
}

TEST(MeasuredCopies, OfTheStandIn) {
  const auto copies = measure_copies(cuda::stand_in_backend(), 0, small);
  ASSERT_TRUE(copies.ok()) << copies.error().to_string();
  EXPECT_THAT(copies->gpu, HasSubstr("in place of a GPU"));
  expect_possible(copies->pinned);
  expect_possible(copies->pageable);
}

class FakeCopies : public FakeGpu {};

// Its copies are done when somebody waits for them: those nobody waited for would not be in the times.
TEST_F(FakeCopies, AreWaitedFor) {
  const auto chosen = choose_backend({fake_path, GpuMissing::error}).value();
  fake_fail("", 0);
  const auto copies = measure_copies(*chosen.backend, 0, small);
  ASSERT_TRUE(copies.ok()) << copies.error().to_string();
  expect_possible(copies->pinned);
  // Four sizes, one that warms up and five each; then four at once, six times; twice.
  EXPECT_EQ(fake_calls("copy_in"), 2 * (4 * 6 + 6 * 4));
  EXPECT_EQ(fake_calls("copy_out"), 2 * (4 * 6 + 6 * 4));
  EXPECT_EQ(fake_calls("wait"), 2 * (4 * 6 * 2 + 6 * 2));
  EXPECT_EQ(fake_calls("pin"), 1);
}

TEST_F(FakeCopies, EveryFailureSaysWhatWasAskedFor) {
  const auto chosen = choose_backend({fake_path, GpuMissing::error}).value();
  for (const char* function : {"open", "allocate", "pin", "create_event", "copy_in", "copy_out", "record", "wait"}) {
    SCOPED_TRACE(function);
    fake_fail(function, 1);
    const auto copies = measure_copies(*chosen.backend, 0, small);
    ASSERT_FALSE(copies.ok());
    EXPECT_THAT(copies.error().to_string(), AllOf(HasSubstr("(GPU): "), HasSubstr("the fake was told to fail")));
  }
}

}  // namespace
}  // namespace nlsplit
