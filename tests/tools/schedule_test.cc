// nlsim schedule, and plans whose schedule is a file, through the programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Schedule : public ::testing::Test {
 protected:
  void refuse(const std::string& arguments, const std::string& message) {
    const Outcome outcome =
        nlsim(fmt::format("schedule {} -o {} --json {}", arguments, scratch_ / "o.csv", scratch_ / "o.json"));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "o.csv"));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "o.json"));
  }
  Scratch scratch_;
};

TEST_F(Schedule, DrawsOne) {
  const Outcome outcome = nlsim("schedule 1f1b --devices 2 --micro-batches 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("1f1b · 2 devices, 2 stages, 2 micro-batches\n\n"
                                      "device 0  F0 F1 ......B0--- ...B1--- \n"
                                      "device 1  ...F0 B0--- F1 B1--- ......\n\n"
                                      "makespan 9 · bubble 33.3 %"));
}

TEST_F(Schedule, TimesMessagesAndMemoryCount) {
  const auto makespan = [](const std::string& arguments) {
    const Outcome outcome = nlsim("schedule " + arguments + " --json -");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("makespan_s").get<double>();
  };
  // (m + p - 1)(F + I + W); two messages down and two up on the way of the last micro-batch, each 2.
  EXPECT_DOUBLE_EQ(makespan("gpipe --devices 3 --micro-batches 4 --times 1,2,0.5"), 6 * 3.5);
  EXPECT_DOUBLE_EQ(makespan("gpipe --devices 3 --micro-batches 1 --message 2"), 9 + 8);
  EXPECT_DOUBLE_EQ(makespan("streaming --devices 3 --micro-batches 4 --times 5"), 6 * 5);
  EXPECT_GT(makespan("list --keep 1"), makespan("list"));
  EXPECT_LE(makespan("search --placement v"), makespan("zb_v"));
}

TEST_F(Schedule, ListsAll) {
  const Outcome outcome = nlsim("schedule --list");
  EXPECT_EQ(outcome.code, 0);
  for (const char* part : {"zb_v", "training", "mirrored", "DeepSeek-V3, 2024, section 3.2.1", "search"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST_F(Schedule, WritesAndReadsFiles) {
  const std::string file = scratch_ / "s.csv", again = scratch_ / "t.csv";
  const Outcome made = nlsim(fmt::format("schedule zb_v --devices 2 --micro-batches 4 -o {}", file));
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome read = nlsim(fmt::format("schedule {} -o {}", file, again));
  ASSERT_EQ(read.code, 0) << read.err;
  EXPECT_EQ(value_of(read_file(file)), value_of(read_file(again)));
  EXPECT_EQ(made.out.substr(made.out.find("device 0")), read.out.substr(read.out.find("device 0")));
}

TEST_F(Schedule, WritesAPicture) {
  const Outcome outcome =
      nlsim(fmt::format("schedule zb_v --devices 2 --micro-batches 4 --svg {}", scratch_ / "s.svg"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(value_of(read_file(scratch_ / "s.svg")), StartsWith("<svg xmlns="));
  EXPECT_THAT(value_of(read_file(scratch_ / "s.svg")), HasSubstr("zb_v · 2 devices, 4 stages, 4 micro-batches"));
  refuse(fmt::format("zb_v --devices 3 --stages 4 --svg {}", scratch_ / "t.svg"), "placement v");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "t.svg"));
}

TEST_F(Schedule, RefusesWhatCannotBe) {
  refuse("1f1bb", "unknown schedule '1f1bb'; did you mean '1f1b'? (there are streaming");
  refuse("", "needs the name of a schedule or a FILE.csv; --list shows the names");
  refuse("interleaved --devices 4 --micro-batches 6",
         "needs a multiple of 4 micro-batches, one for each device; there are 6");
  refuse("zb_v --devices 4 --stages 6", "6 stages on 4 devices: placement v means the stages in a V");
  refuse("dualpipe --devices 3", "3 stages on 3 devices: placement mirrored means two pipelines against each other");
  refuse("1f1b --placement v", "schedule 1f1b needs one stage a device");
  refuse("gpipe --placement w", "no placement 'w'; there are chain, loop, v and mirrored");
  refuse("1f1b --times 1,2", "--times 1,2: training takes three, F,I,W");
  refuse("1f1b --times 1,x,1", "--times 1,x,1: 'x' is not a time");
  refuse("streaming --times 1,1,1", "--times 1,1,1: inference takes one, of F");
  refuse("1f1b --message nan", "--message takes a time from 0 on");
  refuse("1f1b --micro-batches 0", "'0' is not an integer from 1 on");
  refuse("gpipe --keep 2", "memory: 3 B would be kept of 3 micro-batches");
  refuse(scratch_ / "none.csv", "none.csv");
  refuse(scratch_.write("s.csv", "0F0,0F0\n"),
         "s.csv:1:5: rank 0, slot 2 (0F0): a second time; first in slot 1 of rank 0\n  | slot");
  refuse(scratch_.write("s.csv", "0F0\n") + " --devices 2",
         "the file says devices, stages, micro-batches and placement");
}

TEST_F(Schedule, APlanMayHaveAFileOfItsOwn) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/schedule_file.yaml";
  const Outcome simulated = nlsim(fmt::format("simulate {} --plan mine", scenario));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("4 micro-batches, file:"));
  const Outcome lowered = nlsim(fmt::format("lower {} --plan mine", scenario));
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  // The order of A is the file's row, one slot a line, each with its instances.
  size_t from = lowered.out.find("  order\n");
  for (const char* slot : {"F0.0", "F0.1", "F2.0", "F0.2", "F2.1", "F0.3", "F2.2", "F2.3"}) {
    from = lowered.out.find('\n', from) + 1;
    EXPECT_EQ(lowered.out.substr(from, 8), fmt::format("    {}", slot));
  }
  const Outcome ran = nlbench(fmt::format("run {} --plan mine --transport threads --check", scenario));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(Schedule, AScenariosPlanIsDrawnOnItsTimes) {
  const std::string scenario = NLS_SOURCE_DIR "/scenarios/schedule_file.yaml";
  const auto answer = [&](const std::string& arguments) {
    const Outcome outcome = nlsim(fmt::format("schedule {} --plan mine --json - {}", scenario, arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto own = answer(""), searched = answer("--schedule search");
  EXPECT_EQ(own.at("devices")[0].at("slots")[2].at("stage"), 2);  // as the file has it
  EXPECT_GT(own.at("makespan_s").get<double>(), 1e-5);            // of the machines, not paper's
  EXPECT_LE(searched.at("makespan_s"), own.at("makespan_s"));
  refuse(scenario + " --plan mine --times 1", "the scenario and its plan say devices, stages, micro-batches, times");
  refuse("1f1b --plan mine", "--plan, --plan-file and --schedule need a scenario");
  refuse(scenario + " --plan mine --schedule 1f1b", "schedule 1f1b is for training; for inference there are streaming");
  const Outcome training =
      nlsim(fmt::format("schedule {}/scenarios/training.yaml --plan quarters --schedule zb_h1", NLS_SOURCE_DIR));
  EXPECT_EQ(training.code, 0) << training.err;
  EXPECT_THAT(training.out, HasSubstr("zb_h1, seconds · 4 devices, 4 stages"));
}

TEST_F(Schedule, AFileThatDoesNotFitThePlanIsRefused) {
  const auto refuse_plan = [&](const std::string& csv, const std::string& plan, const std::string& message) {
    scratch_.write("mine.csv", csv);
    const std::string file =
        scratch_.write("s.yaml", with(small_scenario(), "mine: [..relu1@A, ..relu2@B, rest@C]", plan));
    const Outcome outcome = nlsim(fmt::format("simulate {} --plan mine", file));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  };
  const std::string stages = "mine: {stages: [..relu1@A, ..relu2@B, rest@C], ";
  refuse_plan("0F0\n", stages + "schedule: {file: none.csv}}", "none.csv");
  refuse_plan("0F0\n", stages + "schedule: {files: mine.csv}}", "files");
  refuse_plan("0X0\n", stages + "schedule: {file: mine.csv}}", "mine.csv:1:1: rank 0, slot 1: '0X0' has no action X");
  refuse_plan("0F0,0F1,0F2\n1F0,1F1,1F2\n2F0,2F1,2F2\n", stages + "schedule: {file: mine.csv}}",
              "the schedule is for 3 micro-batches, and they do not divide the batch of 8 evenly");
  refuse_plan("0F0,0F1\n1F0,1F1\n2F0,2F1\n", stages + "micro_batches: 4, schedule: {file: mine.csv}}",
              "the schedule is for 2 micro-batches: leave micro_batches away");
  refuse_plan("0F0,0F1\n1F0,1F1\n", stages + "schedule: {file: mine.csv}}", "the table has 2 devices, the plan has 3");
  refuse_plan("1F0,1F1\n0F0,0F1\n2F0,2F1\n", stages + "schedule: {file: mine.csv}}",
              "rank 0, slot 1 (1F0): stage 1 is not on this rank but on 1");
  refuse_plan("0F0,0F1,0B0,0B1\n1F0,1F1\n2F0,2F1\n", stages + "schedule: {file: mine.csv}}",
              "rank 0, slot 3 (0B0): phase I where there is no training");
}

}  // namespace
}  // namespace nlsplit
