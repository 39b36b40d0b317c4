// Computations that never return, in every way in which they can, end the run with a message that names them; slow ones
// on a busy machine do not. Over MPI: stuck_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "exec/programs.h"
#include "exec/work_watch.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

double elapsed_s(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Uses so much processor time, or until told to stop.
void spin(double seconds, const std::atomic<bool>& stop) {
  timespec begin{}, now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (!stop &&
           static_cast<double>(now.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec - begin.tv_nsec) <
               seconds);
}

// What happened to one watched computation.
struct Watched {
  std::string overdue;
  double after_s = 0;
};

// One computation on this thread, which ends when `body` does; the watch tells it to.
template <class Body>
Watched watch_one(Deadlines deadlines, const Body& body) {
  Watched result;
  std::atomic<bool> stop{false};
  Liveness liveness;
  const auto begin = Clock::now();
  WorkWatch watch(liveness, {deadlines, [&](const Error& why) {
                               EXPECT_EQ(exit_code(why), 3);
                               result = {why.message, elapsed_s(begin)};
                               stop = true;
                             }});
  const pid_t self = ::gettid();
  const WorkWatch::Watched watched(watch,
                                   {[self] { return std::vector<pid_t>{self}; }, [] { return "device A slot 1"; }});
  watch.expect(0, "");
  liveness.computing(true);
  body(stop);
  liveness.computing(false);
  return result;
}

TEST(WorkWatch, ASpinningComputationIsOverdue) {
  const Watched seen = watch_one({10, 0.2, 0}, [](const std::atomic<bool>& stop) { spin(60, stop); });
  EXPECT_THAT(seen.overdue, AllOf(HasSubstr("device A slot 1 has computed for "), HasSubstr("0.2 s are allowed"),
                                  HasSubstr("--deadline-floor")));
}

TEST(WorkWatch, ABlockedComputationIsOverdue) {
  const Watched seen = watch_one({10, 0.2, 0}, [](const std::atomic<bool>& stop) {
    const auto begin = Clock::now();
    while (!stop && elapsed_s(begin) < 60) std::this_thread::sleep_for(5ms);
  });
  EXPECT_THAT(seen.overdue, HasSubstr("its thread used 0.0 s of processor time"));
  EXPECT_GE(seen.after_s, 0.2);
}

TEST(WorkWatch, WhatIsPredictedMayTakeLong) {
  std::atomic<bool> overdue{false};
  Liveness liveness;
  WorkWatch watch(liveness, {{10, 0.05, 0}, [&](const Error&) { overdue = true; }});
  const pid_t self = ::gettid();
  const WorkWatch::Watched watched(watch, {[self] { return std::vector<pid_t>{self}; }, [] { return ""; }});
  watch.expect(10, "the predicted");
  liveness.computing(true);
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(overdue);
  watch.expect(0.01, "the predicted");
  std::this_thread::sleep_for(400ms);
  EXPECT_TRUE(overdue);
  liveness.computing(false);
}

TEST(WorkWatch, ManyShortComputationsAreNone) {
  const Watched seen = watch_one({10, 0.05, 0}, [](const std::atomic<bool>& stop) { spin(0, stop); });
  EXPECT_EQ(seen.overdue, "");
  std::atomic<bool> overdue{false};
  Liveness liveness;
  WorkWatch watch(liveness, {{10, 0.05, 0}, [&](const Error&) { overdue = true; }});
  const pid_t self = ::gettid();
  const WorkWatch::Watched watched(watch, {[self] { return std::vector<pid_t>{self}; }, [] { return ""; }});
  watch.expect(0, "");
  for (int i = 0; i < 60; ++i) {
    liveness.computing(true);
    std::this_thread::sleep_for(5ms);
    liveness.computing(false);
  }
  EXPECT_FALSE(overdue);
}

// Eight threads want this thread's core: the wall's time is many times what it may use, its own is not.
TEST(WorkWatch, ABusyMachineIsNoAlarm) {
  if (!std::ifstream("/proc/self/schedstat"))
    GTEST_SKIP() << "this system does not tell how long threads wait for a core";
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);  // threads begin where their maker is
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 8; ++i) load.emplace_back([&stop] { spin(60, stop); });
  const auto begin = Clock::now();
  const Watched seen = watch_one({10, 0.5, 0}, [](const std::atomic<bool>& told) { spin(0.2, told); });
  const double took_s = elapsed_s(begin);
  stop = true;
  for (std::thread& thread : load) thread.join();
  ::sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(seen.overdue, "");
  EXPECT_GT(took_s, 0.8) << "the load was none";
}

TEST(WorkWatch, PreparationsThatHang) {
  std::string overdue;
  std::atomic<bool> stop{false};
  Liveness liveness;
  liveness.begin("the distribution of the weights");
  WorkWatch watch(liveness, {{10, 0, 0.2}, [&](const Error& why) {
                               overdue = why.message;
                               stop = true;
                             }});
  {
    const Liveness::Work work(liveness);
    for (int piece = 0; piece < 10; ++piece) {  // each in time
      std::this_thread::sleep_for(50ms);
      liveness.moved();
    }
    {
      const Liveness::Wait wait(liveness);  // for others, which is the watchdog's business
      std::this_thread::sleep_for(400ms);
    }
    EXPECT_FALSE(stop);  // not `overdue`, which the watch's thread may be about to write
    for (const auto begin = Clock::now(); !stop && elapsed_s(begin) < 60;) std::this_thread::sleep_for(5ms);
  }
  EXPECT_THAT(overdue, AllOf(HasSubstr("the distribution of the weights"), HasSubstr("--prepare-limit")));
}

// A kernel that hangs in the third computation of device B, until the test lets it go.
std::atomic<int> calls{0};
std::atomic<bool> let_go{false}, spins{false};
const KernelCode* real_matmul = nullptr;

void hang_in_the_third(const KernelCall& call) {
  real_matmul->run(call);
  if (++calls != 3) return;
  if (spins)
    spin(60, let_go);
  else
    for (const auto begin = Clock::now(); !let_go && elapsed_s(begin) < 60;) std::this_thread::sleep_for(5ms);
}

TEST(Deadlines, AKernelThatNeverReturnsEndsTheRun) {
  const auto library = KernelLibrary::load(Isa::v2);
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  real_matmul = *library->find({KernelName::matmul, Isa::v2});
  const KernelCode stuck{hang_in_the_third, real_matmul->pack};
  const Program program = program_of("interleaved");
  for (const bool spinning : {false, true}) {
    calls = 0;
    let_go = false;
    spins = spinning;
    RunOptions options = test_options();
    options.deadlines = {10, 0.3, 0};
    options.kernels = [&stuck](KernelId) { return &stuck; };
    std::string why;
    options.on_stuck = [&](const Error& error) {
      why = error.message;
      let_go = true;  // nlbench ends here
    };
    const auto result = run_threads(program, seeded_job(program), options);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(exit_code(result.error()), 3);
    EXPECT_THAT(result.error().message, AllOf(HasSubstr(" slot "), HasSubstr("MatMul"), HasSubstr("does not end")));
    EXPECT_EQ(result.error().message, why);
  }
}

}  // namespace
}  // namespace nlsplit
