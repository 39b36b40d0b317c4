#include "exec/backends/workers.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

TEST(Workers, LetMessagesGoFirst) {
  constexpr int wanted = 10;  // of helpers; who is nicer already stays so
  const int before = ::getpriority(PRIO_PROCESS, 0);
  Workers workers(4, {});
  const Crew crew = workers.crew();
  std::vector<int> niceness(4, -100);
  crew.run(
      crew.self,
      [](void* context, int worker) {
        (*static_cast<std::vector<int>*>(context))[static_cast<size_t>(worker)] = ::getpriority(PRIO_PROCESS, 0);
      },
      &niceness);
  EXPECT_EQ(niceness[0], before);  // the caller's is its own business
  for (size_t worker = 1; worker < 4; ++worker) EXPECT_EQ(niceness[worker], std::max(before, wanted)) << worker;
  int of_caller = -100;
  std::thread([&] {
    let_messages_go_first();
    let_messages_go_first();
    of_caller = ::getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_EQ(of_caller, std::max(before, wanted));
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

// Claims in a file of the test's own: what else runs on this machine does not matter.
class Cores : public ::testing::Test {
 protected:
  void SetUp() override {
    const int fd = ::mkstemp(file_.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine_), &mine_), 0);
    usable_ = CPU_COUNT(&mine_);
    if (usable_ < 2) GTEST_SKIP() << "one core only";
  }
  void TearDown() override { ::unlink(file_.c_str()); }

  ChosenCores choose(const std::vector<int>& cores, int device, const std::vector<int>& here, uint64_t run = 1) const {
    return choose_cores(program_with(cores), device, here, run, file_);
  }

  std::string file_ = "/tmp/cores-test-XXXXXX";
  cpu_set_t mine_{};
  int usable_ = 0;
};

TEST_F(Cores, AreSharedOutOnlyWhereThereAreEnough) {
  {
    const std::vector<int> pins = choose({2}, 0, {0}).pins;
    ASSERT_EQ(pins.size(), 2u);
    EXPECT_NE(pins[0], pins[1]);
    for (const int core : pins) EXPECT_TRUE(CPU_ISSET(core, &mine_));
  }
  EXPECT_TRUE(choose({1}, 0, {0}).pins.empty()) << "the system may place a single worker";
  EXPECT_TRUE(choose({usable_, 2}, 1, {0, 1}).pins.empty());
  EXPECT_TRUE(choose({usable_ + 1}, 0, {0}).pins.empty());
  {
    const ChosenCores first = choose({1, 1}, 0, {0, 1}), second = choose({1, 1}, 1, {0, 1});
    EXPECT_NE(first.pins, second.pins);
    EXPECT_EQ(second.pins.size(), 1u);
  }
  // Somewhere else others count: here they do not.
  EXPECT_EQ(choose({usable_, 2}, 1, {1}).pins.size(), 2u);
}

TEST_F(Cores, OfAnotherRunAreLeftToIt) {
  std::optional<ChosenCores> ours = choose({1, 1}, 0, {0, 1});
  ASSERT_EQ(ours->pins.size(), 1u);
  // The other one would choose the same, and takes another one.
  const ChosenCores theirs = choose({1}, 0, {0}, 2);
  ASSERT_EQ(theirs.claim.cores().size(), 1u);
  EXPECT_NE(theirs.claim.cores(), ours->pins);
  EXPECT_FALSE(theirs.shared);
  // There are not enough for these, which is said.
  const ChosenCores all = choose({usable_}, 0, {0}, 3);
  EXPECT_TRUE(all.pins.empty());
  EXPECT_TRUE(all.shared);
  // Of one run it is known: this is nobody else's doing.
  const ChosenCores also_ours = choose({usable_}, 0, {0}, 1);
  EXPECT_TRUE(also_ours.pins.empty());
  EXPECT_EQ(also_ours.shared, true) << "run 2 has one, too";
  ours.reset();
  EXPECT_EQ(choose({1, 1}, 0, {0, 1}, 4).pins.size(), 1u) << "what ended is free";
}

TEST_F(Cores, OfAKilledRunAreFree) {
  const pid_t child = ::fork();
  if (child == 0) {
    const ChosenCores held = choose({usable_}, 0, {0}, 7);
    ::_exit(held.pins.size() == static_cast<size_t>(usable_) ? 0 : 1);  // no destructor, as if killed
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(choose({usable_}, 0, {0}, 8).pins.size(), static_cast<size_t>(usable_));
}

TEST_F(Cores, WithoutAFileAreNotAskedFor) {
  file_ = "/nowhere/claims";
  const ChosenCores one = choose({2}, 0, {0}, 1), other = choose({2}, 0, {0}, 2);
  EXPECT_EQ(one.pins.size(), 2u);
  EXPECT_EQ(one.pins, other.pins);
}

TEST_F(Cores, PinnedWorkersRunWhereTheyShould) {
  const std::vector<int> pins = choose({2}, 0, {0}).pins;
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
