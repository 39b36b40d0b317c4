// `nlsim simulate --opinions` and `--smpi` as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OpinionsOfAPlan : public ::testing::Test {
 protected:
  // A program of that name before all others in PATH.
  void pretend(const std::string& name, const std::string& lines) const {
    const std::string path = scratch_.write(name, "#!/bin/sh\n" + lines);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::string with_path(const std::string& path, const std::string& arguments) const {
    return fmt::format("PATH={} {}/nlsim simulate {} --plan mine {}", path, NLS_BIN_DIR, scenario_, arguments);
  }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("small.yaml", small_scenario());
};

TEST_F(OpinionsOfAPlan, ThreeSimulatorsAndTheirSpread) {
  if (!is_in_path("smpirun")) GTEST_SKIP() << "no smpirun";
  const Outcome outcome = nlsim("simulate " + scenario_ + " --plan mine --opinions --json " + (scratch_ / "o.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"\nsimulator", "\nfast tier", "\nSimGrid", "\nSMPI", "\nuncertainty  "})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const json file = json::parse(value_of(read_file(scratch_ / "o.json")));
  const json& simulators = file.at("opinions").at("simulators");
  ASSERT_EQ(simulators.size(), 3U);
  EXPECT_EQ(simulators[2].at("name"), "smpi");
  double least = 1e300, most = 0;
  for (const json& one : simulators) {
    const double makespan = one.at("makespan_s").get<double>();
    least = std::min(least, makespan);
    most = std::max(most, makespan);
    EXPECT_NEAR(one.at("throughput_per_s").get<double>() * makespan, 8, 1e-9);
  }
  EXPECT_EQ(simulators[1].at("makespan_s"), file.at("makespan_s"));
  EXPECT_NEAR(file.at("opinions").at("spread").get<double>(), (most - least) / file.at("makespan_s").get<double>(),
              1e-12);
  EXPECT_LT(most / least, 1.1);
}

// Who has the folder gets the same figure without nlsim.
TEST_F(OpinionsOfAPlan, TheFolderCanBeReplayedAlone) {
  if (!is_in_path("smpirun")) GTEST_SKIP() << "no smpirun";
  const Outcome outcome =
      nlsim("simulate " + scenario_ + " --plan mine --json - --opinions --smpi " + (scratch_ / "replay"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const double makespan = json::parse(outcome.out).at("opinions").at("simulators")[2].at("makespan_s").get<double>();
  const Outcome alone = run_command("sh " + (scratch_ / "replay/replay.sh"));
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr(fmt::format("{:.15f}:Simulation time", makespan)));
}

TEST_F(OpinionsOfAPlan, TheFolderNeedsNoSmpirun) {
  EXPECT_EQ(run_command(with_path("/nowhere", "--smpi " + (scratch_ / "replay"))).code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "replay/platform.xml"));
}

TEST_F(OpinionsOfAPlan, WithoutSmpirunTheErrorNamesThePackage) {
  const Outcome outcome = run_command(with_path("/nowhere", "--opinions"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no smpirun in PATH"), HasSubstr("libsimgrid-dev")));
}

TEST_F(OpinionsOfAPlan, WhatCannotBe) {
  const Outcome folder = nlsim("simulate " + scenario_ + " --plan mine --smpi /dev/null/replay");
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, HasSubstr("/dev/null"));
  const Outcome noise = nlsim("simulate " + scenario_ + " --plan mine --smpi x --noise-run 1");
  EXPECT_EQ(noise.code, 2);
  EXPECT_THAT(noise.err, HasSubstr("--noise-run"));
  const std::string online = scratch_.write(
      "online.yaml", with(small_scenario(), "mine: [..relu1@A, ..relu2@B, rest@C]\n",
                          "mine: {stages: [..relu1@A, ..relu2@B, rest@A], micro_batches: 8, schedule: {online: "
                          "longest_path, in_flight: 4}}\n"));
  const Outcome undecided = nlsim("simulate " + online + " --plan mine --smpi " + (scratch_ / "online"));
  EXPECT_EQ(undecided.code, 2);
  EXPECT_THAT(undecided.err, HasSubstr("a trace has an order for every rank"));
}

TEST_F(OpinionsOfAPlan, AReplayThatFailsHasTheLastWord) {
  pretend("smpirun", "echo something is wrong >&2\nexit 3\n");
  const Outcome outcome = run_command(with_path((scratch_ / "") + ":$PATH", "--opinions"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("smpirun ended with exit code 3 and no makespan:\nsomething is wrong"));
}

TEST_F(OpinionsOfAPlan, AReplayEndsWithUs) {
  const std::string file = scratch_ / "process";
  pretend("smpirun", fmt::format("echo $$ > {}\nexec sleep 300\n", file));
  const Outcome outcome = run_command(fmt::format(
      "( {} & P=$!; until test -s {}; do sleep 0.02; done; kill $P; wait $P; "
      "N=0; while kill -0 $(cat {}) && test $N -lt 500; do sleep 0.02; N=$((N + 1)); done; test $N -lt 500 )",
      with_path((scratch_ / "") + ":$PATH", "--opinions"), file, file));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace nlsplit
