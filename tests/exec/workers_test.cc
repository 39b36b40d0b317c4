#include "exec/workers.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <set>
#include <thread>

namespace nlsplit {
namespace {

struct Seen {
  std::atomic<int> calls{0};
  std::vector<std::atomic<int>> of_worker = std::vector<std::atomic<int>>(4);
};
void note(void* context, int worker) {
  Seen& seen = *static_cast<Seen*>(context);
  ++seen.calls;
  ++seen.of_worker[static_cast<size_t>(worker)];
}

TEST(Workers, EachRunsTheBodyOnceEveryTime) {
  Workers workers(4, {});
  const Crew crew = workers.crew();
  ASSERT_EQ(crew.workers, 4);
  Seen seen;
  for (int round = 1; round <= 2000; ++round) {
    crew.run(crew.self, note, &seen);
    ASSERT_EQ(seen.calls, 4 * round);  // all are done when run returns
  }
  for (const auto& count : seen.of_worker) EXPECT_EQ(count, 2000);
}

TEST(Workers, WakeFromSleep) {
  Workers workers(2, {});
  const Crew crew = workers.crew();
  Seen seen;
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    crew.run(crew.self, note, &seen);
  }
  EXPECT_EQ(seen.calls, 6);
}

TEST(Workers, AloneTheCallerNeedsNobody) {
  Workers workers(1, {});
  EXPECT_EQ(workers.crew().workers, 1);
  EXPECT_EQ(workers.crew().run, nullptr);
}

Program program_with(std::vector<int> cores) {
  Program program;
  for (const int count : cores) program.devices.emplace_back().cores = count;
  return program;
}

TEST(Workers, CoresAreSharedOutOnlyWhereThereAreEnough) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  const int usable = CPU_COUNT(&mine);
  if (usable < 2) GTEST_SKIP() << "one core only";
  const std::vector<int> pins = choose_cores(program_with({2}), 0, {0});
  ASSERT_EQ(pins.size(), 2u);
  EXPECT_NE(pins[0], pins[1]);
  for (const int core : pins) EXPECT_TRUE(CPU_ISSET(core, &mine));
  EXPECT_TRUE(choose_cores(program_with({1}), 0, {0}).empty()) << "the system may place a single worker";
  EXPECT_TRUE(choose_cores(program_with({usable, 2}), 1, {0, 1}).empty());
  EXPECT_TRUE(choose_cores(program_with({usable + 1}), 0, {0}).empty());
  EXPECT_NE(choose_cores(program_with({1, 1}), 0, {0, 1}), choose_cores(program_with({1, 1}), 1, {0, 1}));
  // Somewhere else others count: here they do not.
  EXPECT_EQ(choose_cores(program_with({usable, 2}), 1, {1}).size(), 2u);
}

TEST(Workers, PinnedOnesRunWhereTheyShould) {
  const std::vector<int> pins = choose_cores(program_with({2}), 0, {0});
  if (pins.empty()) GTEST_SKIP() << "one core only";
  Workers workers(2, pins);
  std::thread([&] {
    workers.pin_caller();
    const Crew crew = workers.crew();
    int on[2] = {-1, -1};
    crew.run(
        crew.self, [](void* context, int worker) { static_cast<int*>(context)[worker] = sched_getcpu(); }, on);
    EXPECT_EQ(on[0], pins[0]);
    EXPECT_EQ(on[1], pins[1]);
  }).join();
}

}  // namespace
}  // namespace nlsplit
