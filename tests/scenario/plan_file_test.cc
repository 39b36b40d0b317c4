#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "scenario/scenario.h"

namespace nlsplit {
namespace {

class PlanFile : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("nlsplit_plan_" + std::to_string(getpid()) + "_" +
                                                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
    path_ = (dir_ / "found-3.yaml").string();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Result<UserPlan> read(const std::string& text) {
    EXPECT_TRUE(write_file(path_, text).ok());
    return read_plan_file(path_);
  }
  std::string error_of(const std::string& text) {
    const auto plan = read(text);
    return plan.ok() ? "fine" : plan.error().to_string().substr(path_.size());
  }

  std::filesystem::path dir_;
  std::string path_;
};

TEST_F(PlanFile, TextReadsBack) {
  const std::vector<UserPlan> plans = {
      {"mine", {"..layer3.4@A", "rest@B+C"}, {4, 8}, "streaming", {}, {}},
      {"3", {"rest@A"}, {}, "", {}, {}},
      {"o", {"rest@A"}, {8}, "online:longest_path", {}, {}},
      {"p", {"rest@A"}, {}, "online:backward_first,base=zb_v,in_flight=8", {}, {}},
      {"a \"name\", with: signs # \\ \t and \x7f", {"..features/conv {1}@A", "rest@B"}, {1}, "", {}, {}},
  };
  for (const UserPlan& plan : plans) {
    const auto back = read(plan_file_text(plan));
    ASSERT_TRUE(back.ok()) << back.error().to_string() << "\n" << plan_file_text(plan);
    EXPECT_EQ(back->name, plan.name);
    EXPECT_EQ(back->stages, plan.stages);
    EXPECT_EQ(back->micro_batches, plan.micro_batches);
    EXPECT_EQ(back->schedule, plan.schedule);
    EXPECT_EQ(back->where.file, path_);
    EXPECT_EQ(back->where.line, 2);
    EXPECT_EQ(plan_file_text(*back), plan_file_text(plan));
  }
}

TEST_F(PlanFile, TextIsReadable) {
  EXPECT_EQ(plan_file_text({"mine", {"..conv2@A", "rest@B"}, {4}, "streaming", {}, {}}),
            "name: \"mine\"\nstages: [\"..conv2@A\", \"rest@B\"]\nmicro_batches: [4]\nschedule: \"streaming\"\n");
}

TEST_F(PlanFile, MayBeAListAlone) {
  const UserPlan plan = read("[..conv2@A, rest@B]\n").value();
  EXPECT_EQ(plan.name, "found-3");  // the file's
  EXPECT_THAT(plan.stages, ::testing::ElementsAre("..conv2@A", "rest@B"));
}

TEST_F(PlanFile, MayHavePrefillAndDecode) {
  const UserPlan plan = read("prefill: [rest@A]\ndecode: [..conv2@B, rest@A]\n").value();
  EXPECT_THAT(plan.stages, ::testing::ElementsAre("prefill: rest@A", "..conv2@B", "rest@A"));
  EXPECT_EQ(read(plan_file_text(plan)).value().stages, plan.stages);
}

// Decisions to follow are read at once: they say the number of micro-batches.
TEST_F(PlanFile, AnOnlinePolicyMayFollowALog) {
  ASSERT_TRUE(write_file(dir_ / "log, the first.csv", "0F0,0F1\r\n").ok());
  const auto plan =
      read("stages: [rest@A]\nschedule: {online: longest_path, in_flight: 2, replay: \"log, the first.csv\"}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  EXPECT_EQ(plan->schedule, "online:longest_path,in_flight=2,replay=" + (dir_ / "log, the first.csv").string());
  EXPECT_THAT(plan->micro_batches, ::testing::ElementsAre(2));
  const auto back = read(plan_file_text(*plan));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(back->schedule, plan->schedule);
}

TEST_F(PlanFile, Errors) {
  EXPECT_EQ(error_of(""), ": this plan file is empty");
  EXPECT_EQ(error_of("stages: [rest@A]\nmicrobatches: 4\n"),
            ":2:1: unknown key 'microbatches' in a plan: did you mean 'micro_batches'? Its keys are name, stages, "
            "prefill, decode, micro_batches, schedule\n  | microbatches: 4");
  EXPECT_EQ(error_of("micro_batches: 4\n"), ":1:1: a plan lacks 'stages'\n  | micro_batches: 4");
  EXPECT_EQ(error_of("stages: [rest@A]\nmicro_batches: 0\n"),
            ":2:16: a number of micro-batches must be from 1 to 65536, not 0\n  | micro_batches: 0");
  EXPECT_EQ(read_plan_file((dir_ / "none.yaml").string()).error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace nlsplit
