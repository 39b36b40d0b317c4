// nlsim sweep through the program: its files, its exit codes, and what Ctrl-C leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SweepTool : public ::testing::Test {
 protected:
  std::string experiment(const std::string& axes, const std::string& shape = "devices: 8, micro_batches: 32") const {
    return scratch_.write("e.yaml", "pipeline: {" + shape + ", times: [1ms, 1ms, 1ms]}\naxes: {" + axes + "}\n");
  }
  Outcome sweep(const std::string& more = "") const {
    return nlsim(fmt::format("sweep {} -o {} {}", scratch_ / "e.yaml", scratch_ / "out", more));
  }
  std::string csv() const { return value_of(read_file(scratch_ / "out/points.csv")); }
  Scratch scratch_;
};

TEST_F(SweepTool, WritesPointsAndPage) {
  experiment("schedule: [1f1b, zb_v], message: [0s, 100us]");
  const Outcome outcome = sweep();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("4 points\n\nmakespan by schedule, best first\n"));
  EXPECT_THAT(outcome.out, HasSubstr("points.csv and "));
  EXPECT_THAT(csv(),
              StartsWith("schedule,micro_batches,message_s,seed,status,reason,makespan_s,throughput_samples_per_s,"
                         "latency_mean_s,bubble,inner_bubble_s,busiest_device,busiest_device_share,busiest_link,"
                         "busiest_link_share,peak_memory_bytes,kept_micro_batches,fingerprint\n1f1b,32,0,,ok,,"));
  EXPECT_THAT(value_of(read_file(scratch_ / "out/report.html")), HasSubstr("<h1>Sweep</h1>"));
  const std::string before = csv();
  const Outcome again = sweep();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("4 of the points were there before"));
  EXPECT_EQ(csv(), before);
}

TEST_F(SweepTool, RefusesWithCode2AndWritesNothing) {
  experiment("schedule: [1f1b, zb_w]");
  for (const auto& [outcome, message] :
       {std::pair{sweep(), std::string("e.yaml:2:25: unknown schedule 'zb_w'")},
        std::pair{nlsim("sweep " + (scratch_ / "none.yaml")), std::string("none.yaml")},
        std::pair{nlsim("sweep zb_v"), std::string("zb_v: sweep needs an experiment (*.yaml)")},
        std::pair{nlsim("sweep"), std::string("EXPERIMENT")}}) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

TEST_F(SweepTool, KeepsPointsOfAnotherExperiment) {
  experiment("schedule: [1f1b]");
  ASSERT_EQ(sweep().code, 0);
  const std::string before = csv();
  experiment("schedule: [zb_v]");
  const Outcome refused = sweep();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("points.csv:2:1: this point (1f1b, 32, , fingerprint "));
  EXPECT_EQ(csv(), before);
  EXPECT_EQ(sweep("--fresh").code, 0);
  EXPECT_NE(csv(), before);
}

TEST_F(SweepTool, CtrlCKeepsWhatIsDone) {
  constexpr int seeds = 50'000;  // far more than a moment's worth, however many cores there are
  experiment(fmt::format("schedule: [1f1b], jitter: [10%], seeds: {}", seeds), "devices: 16, micro_batches: 256");
  const Outcome outcome =
      run_command(fmt::format("timeout --foreground --preserve-status -s INT 2 {}/nlsim sweep {} -o {}", NLS_BIN_DIR,
                              scratch_ / "e.yaml", scratch_ / "out"));
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("the same command resumes there"));
  const std::string before = csv();
  EXPECT_GT(std::ranges::count(before, '\n'), 1);
  EXPECT_LT(std::ranges::count(before, '\n'), seeds);
  EXPECT_EQ(before.back(), '\n');
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/report.html"));
  const Outcome more =
      run_command(fmt::format("timeout --foreground --preserve-status -s INT 2 {}/nlsim sweep {} -o {}", NLS_BIN_DIR,
                              scratch_ / "e.yaml", scratch_ / "out"));
  EXPECT_EQ(more.code, 130) << more.err;
  EXPECT_GT(csv().size(), before.size());
  EXPECT_THAT(csv(), StartsWith(before));
}

}  // namespace
}  // namespace nlsplit
