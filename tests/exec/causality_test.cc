// Times of different devices can be compared: no message arrives before it was sent, however late a rank is.
#include "testing/causality.h"

#include <gtest/gtest.h>

#include <thread>

#include "exec/programs.h"
#include "exec/transport_threads.h"
#include "testing/late_transport.h"

namespace nlsplit {
namespace {

using namespace testing;
using namespace std::chrono_literals;

RunOptions one_execution() {
  RunOptions options;
  options.warmup = 0;
  options.repeats = 1;
  return options;
}

// Rank 1 leaves the barrier long after rank 0: by its own clock of the execution, messages would arrive early.
TEST(Causality, ARankThatBeginsLate) {
  const Program program = program_of("interleaved");
  ThreadWorld world(2, program.eager_limit);
  LateTransport late(world.endpoint(1), 10ms);
  std::thread other([&] { EXPECT_TRUE(run(nullptr, {}, late, one_execution()).ok()); });
  const auto result = run(&program, seeded_job(program), world.endpoint(0), one_execution());
  other.join();
  ASSERT_TRUE(result.ok()) << error_of(result);
  expect_causal(program, result->trace);
  EXPECT_EQ(result->clock_error_s, 0) << "ranks of one machine have one clock";
  // Begun together, for all that rank 1 is late: its first receive is posted late.
  EXPECT_GE(result->trace.makespan, 0.004);
}

// A clock that is half an hour ahead: the offset is measured, and its error said.
TEST(Causality, ClocksOfDifferentMachines) {
  const Program program = program_of("interleaved");
  RunOptions options = one_execution();
  options.repeats = 3;
  options.foreign_clocks_s = {0, 1800};
  const auto result = run_threads(program, seeded_job(program), options);
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_GT(result->clock_error_s, 0);
  EXPECT_LT(result->clock_error_s, 1);
  for (const double makespan : result->makespans_s) EXPECT_LT(makespan, 10);
  expect_causal(program, result->trace, result->clock_error_s);
}

// A machine that cannot keep up with emulated compute: what came meanwhile did not come before it was there.
TEST(Causality, ADeviceClockThatIsBehind) {
  const Program program = program_of("interleaved");
  Job job = seeded_job(program);
  for (const double each : {0.0, 0.001}) {
    job.clocks.assign(program.devices.size(), std::vector<double>(program.descs.size(), each));
    RunOptions options = one_execution();
    options.repeats = 5;
    const auto result = run_threads(program, job, options);
    ASSERT_TRUE(result.ok()) << error_of(result);
    expect_causal(program, result->trace);
  }
}

}  // namespace
}  // namespace nlsplit
