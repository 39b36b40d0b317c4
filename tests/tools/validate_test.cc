// `nlbench validate` as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Validate : public ::testing::Test {
 protected:
  std::string command(const std::string& more = "") const {
    return fmt::format("validate {} -o {} --top 2 --also 2 --duration 10ms --transport threads {}", scenario_,
                       scratch_ / "v", more);
  }
  json report() const { return json::parse(*read_file(scratch_ / "v/report.json")); }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
};

TEST_F(Validate, MeasuresWhatItPredicted) {
  const Outcome outcome = nlbench(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4 of 4 plans measured"));
  for (const char* part : {"throughput error", "Kendall's tau", "regret", "report.html"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const json figures = report();
  ASSERT_EQ(figures["plans"].size(), 4u);
  int sampled = 0;
  for (const json& plan : figures["plans"]) {
    EXPECT_GT(plan["measured"]["makespan_s"].get<double>(), 0);
    sampled += plan["sampled"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(sampled, 2);
  EXPECT_EQ(figures["quality"]["plans"], 4);
  EXPECT_THAT(*read_file(scratch_ / "v/report.html"), HasSubstr("</html>"));
}

TEST_F(Validate, GoesOnWhereItStopped) {
  ASSERT_EQ(nlbench(command()).code, 0);
  const std::string first = *read_file(scratch_ / "v/results.jsonl");
  // The third run of four is lost, half of it is left.
  size_t at = 0;
  for (int line = 0; line < 3; ++line) at = first.find('\n', at) + 1;
  ASSERT_TRUE(write_file(scratch_ / "v/results.jsonl", first.substr(0, at + 20)).ok());
  const Outcome outcome = nlbench(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4 of 4 plans measured"));
  const std::string second = *read_file(scratch_ / "v/results.jsonl");
  EXPECT_EQ(second.substr(0, at), first.substr(0, at)) << "what was there is kept";
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 5);
}

TEST_F(Validate, RoundsAreJoined) {
  ASSERT_EQ(nlbench(command()).code, 0);
  ASSERT_EQ(nlbench(command("--rounds 2")).code, 0);
  for (const json& plan : report()["plans"]) EXPECT_EQ(plan["measured"]["runs"], 2);
}

TEST_F(Validate, SaysWhatCannotBe) {
  const Outcome other = nlbench(fmt::format("validate {} -o {}", scratch_ / "missing.yaml", scratch_ / "v"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("missing.yaml"));
  EXPECT_EQ(nlbench(command("--duration soon")).code, 2);
  EXPECT_EQ(nlbench(command("--top 0")).code, 2);
  const Outcome nobody =
      nlbench(fmt::format("validate {} -o {} --top 2 --also 2 --mpirun /nowhere/mpirun", scenario_, scratch_ / "v"));
  EXPECT_EQ(nobody.code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("cannot start /nowhere/mpirun"));
  const Outcome failing =
      nlbench(fmt::format("validate {} -o {} --top 3 --also 3 --mpirun false", scenario_, scratch_ / "v"));
  EXPECT_EQ(failing.code, 1);
  EXPECT_THAT(failing.out, HasSubstr("3 plans failed"));  // and the others were not tried
  EXPECT_THAT(failing.err, HasSubstr("failed"));
}

}  // namespace
}  // namespace nlsplit
