// The start and the heartbeat under thousands of seeds. More of them: test_heartbeat --seeds 10000. One again:
// test_heartbeat --seed 1234, which prints what happened.
#include "exec/heartbeat/simulation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <charconv>
#include <cstring>

namespace nlsplit {
namespace {

struct Seeds {
  uint64_t first = 1, count = 2000;
  bool tell = false;
};

Seeds& seeds() {
  static Seeds seeds;
  return seeds;
}

TEST(HeartbeatSimulation, HoldsWhatItPromises) {
  int ended = 0, harmless = 0, failures = 0;
  for (uint64_t seed = seeds().first; seed < seeds().first + seeds().count && failures < 5; ++seed) {
    const SimulatedRun run = simulate(seed);
    if (!run.failure.empty()) {
      ++failures;
      ADD_FAILURE() << run.failure << "\n  " << run.scenario << "\n  again: test_heartbeat --seed " << seed;
    }
    if (seeds().tell) fmt::print("seed {}: {}\n{}", seed, run.scenario, run.log);
    ended += run.ended > 0 ? 1 : 0;
    harmless += run.harmless ? 1 : 0;
  }
  fmt::print("{} seeds: {} runs ended by a fault, {} without a fault that counts\n", seeds().count, ended, harmless);
  if (seeds().count >= 1000) {  // the seeds show what they are for
    EXPECT_GT(ended, 400);
    EXPECT_GT(harmless, 200);
  }
}

// What a few neighbours find reaches all, and one rank says it.
TEST(HeartbeatSimulation, ManyRanksEndSoonAfterOneHasDied) {
  for (const int ranks : {18, 32, 64}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      for (const bool in_start : {false, true}) {
        const SimulatedRun run = simulate_death(seed, ranks, in_start);
        SCOPED_TRACE(fmt::format("seed {}: {}", seed, run.scenario));
        ASSERT_EQ(run.failure, "") << run.log;
        if (in_start) continue;  // it may not have died: steps end with the run
        EXPECT_EQ(run.ended, ranks - 1);
        EXPECT_EQ(run.speakers, 1);
        EXPECT_LT(run.ended_after_s, 1) << run.log;
      }
    }
  }
}

bool take_number(const char* text, uint64_t& number) {
  const auto [rest, failure] = std::from_chars(text, text + std::strlen(text), number);
  return failure == std::errc() && *rest == '\0';
}

// GoogleTest takes its own flags and leaves these.
bool take_seeds(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    uint64_t number = 0;
    if (i + 1 >= argc || !take_number(argv[i + 1], number)) return false;
    if (std::string_view(argv[i]) == "--seeds") {
      seeds().count = number;
    } else if (std::string_view(argv[i]) == "--seed") {
      seeds() = {number, 1, true};
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (!nlsplit::take_seeds(argc, argv)) {
    fmt::print(stderr, "usage: test_heartbeat [--seeds N | --seed N] [flags of GoogleTest]\n");
    return 2;
  }
  if (argc > 1) GTEST_FLAG_SET(filter, "HeartbeatSimulation.*");
  return RUN_ALL_TESTS();
}
