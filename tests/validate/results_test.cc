#include "validate/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

class Results : public ::testing::Test {
 protected:
  Results() { std::filesystem::remove(path_); }
  ~Results() override { std::filesystem::remove(path_); }

  ResultsFile open() const {
    auto file = ResultsFile::open(path_, set_, "a machine");
    CHECK(file.ok(), file.ok() ? "" : file.error().to_string());
    return std::move(*file);
  }
  static PlanRun run(const std::string& fingerprint, int round, std::vector<double> makespans) {
    PlanRun run;
    run.fingerprint = fingerprint;
    run.round = round;
    run.calibrations_s["A"] = std::vector<double>(makespans.size(), 1);
    run.makespans_s = std::move(makespans);
    run.latency_mean_s = 0.5;
    run.compute_s = {1, 3};
    run.messages_s = 0.3;
    run.timeline = "{}";
    return run;
  }
  static PredictedPlan predicted(const std::string& fingerprint) {
    PredictedPlan plan;
    plan.fingerprint = fingerprint;
    plan.text = "A ..x | B <rest>";
    plan.folder = "p1";
    plan.devices = {"A", "B"};
    plan.hosts = {"a", "b"};
    plan.makespan_s = 2;
    plan.throughput = 4;
    plan.latency_mean_s = 0.4;
    plan.compute_s = {1, 2};
    plan.messages_s = 0.2;
    plan.timeline = R"({"bars":[]})";
    return plan;
  }

  static PlanRun control(int launch, double makespan) {
    PlanRun it = run("cc", 0, {makespan});
    it.control = true;
    it.launch = launch;
    return it;
  }

  std::string path_ = std::filesystem::temp_directory_path() / ("results-test-" + std::to_string(::getpid()));
  PlanSet set_{"s.yaml", "net", 8, {predicted("aa"), predicted("bb")}};
};

TEST_F(Results, AreThereAfterReopening) {
  {
    ResultsFile file = open();
    EXPECT_TRUE(file.runs().empty());
    ASSERT_TRUE(file.append(run("aa", 0, {1, 2, 4})).ok());
    PlanRun failure;
    failure.fingerprint = "bb";
    failure.error = "it hung";
    ASSERT_TRUE(file.append(failure).ok());
  }
  const ResultsFile file = open();
  ASSERT_EQ(file.runs().size(), 2u);
  EXPECT_EQ(file.runs()[0].makespans_s, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(file.runs()[0].compute_s, (std::vector<double>{1, 3}));
  EXPECT_EQ(file.runs()[0].calibrations_s.at("A"), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(file.runs()[1].error, "it hung");
  EXPECT_TRUE(file.has("aa", 0));
  EXPECT_FALSE(file.has("aa", 1));
  EXPECT_FALSE(file.has("bb", 0)) << "it failed: worth another try";
}

TEST_F(Results, AHalfWrittenLineIsCutOff) {
  {
    ResultsFile file = open();
    ASSERT_TRUE(file.append(run("aa", 0, {1})).ok());
  }
  std::ofstream(path_, std::ios::app) << R"({"fingerprint": "bb", "rou)";
  {
    ResultsFile file = open();
    EXPECT_EQ(file.runs().size(), 1u);
    ASSERT_TRUE(file.append(run("bb", 0, {2})).ok());
  }
  EXPECT_EQ(open().runs().size(), 2u);
}

TEST_F(Results, OfSomethingElseAreRefused) {
  open();
  set_.batch = 16;
  const auto other = ResultsFile::open(path_, set_, "a machine");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("is of something else"));
  set_.batch = 8;
  EXPECT_FALSE(ResultsFile::open(path_, set_, "another machine").ok());
  ASSERT_TRUE(write_file(path_, "").ok());
  EXPECT_FALSE(ResultsFile::open(path_, set_, "a machine").ok());
  ASSERT_TRUE(write_file(path_, "hello\n").ok());
  const auto text = ResultsFile::open(path_, set_, "a machine");
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr(":1: "));
}

TEST_F(Results, AreJoinedOverRounds) {
  PlanRun failure;
  failure.fingerprint = "bb";
  failure.error = "it hung";
  const std::vector<PlanRun> runs = {run("aa", 0, {3, 4}), run("aa", 1, {5}), failure};
  const std::vector<ValidatedPlan> plans = join(set_, runs);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].runs.size(), 2u);
  EXPECT_EQ(plans[0].outcome.makespan.measured, 4);
  EXPECT_EQ(plans[0].outcome.makespan.spread, 0.5);
  EXPECT_EQ(plans[0].outcome.makespan.predicted, 2);
  EXPECT_EQ(plans[0].outcome.score.measured, 4);
  EXPECT_EQ(plans[0].outcome.scores, (std::vector<double>{3.5, 5}));
  EXPECT_FALSE(plans[0].relative.has_value());
  EXPECT_DOUBLE_EQ(plans[0].compute_error, 0.5);  // device B, which was to compute longest: 3 s instead of 2
  EXPECT_DOUBLE_EQ(plans[0].message_error, 0.5);
  EXPECT_EQ(plans[1].error, "it hung");
}

// The machine is twice, then four times as slow as when it was profiled: the plan as well as the control.
TEST_F(Results, AreRelativeToTheControlBesideThem) {
  set_.control = predicted("cc");
  const auto in_launch = [](int launch, PlanRun it) {
    it.launch = launch;
    return it;
  };
  // 2 s are predicted of the control. Between controls of 3 and 5 s a run's seconds count half.
  std::vector<PlanRun> runs = {control(1, 3), in_launch(1, run("aa", 0, {6})), control(1, 5)};
  std::vector<ValidatedPlan> plans = join(set_, runs);
  ASSERT_TRUE(plans[0].relative.has_value());
  EXPECT_DOUBLE_EQ(plans[0].relative->makespan.measured, 3);
  EXPECT_DOUBLE_EQ(plans[0].relative->latency.measured, 0.25);
  EXPECT_EQ(plans[0].outcome.makespan.measured, 6);
  EXPECT_EQ(plans[0].runs.size(), 1u) << "the control is not a run of the plan";
  // A control of another launch says nothing.
  runs.push_back(control(2, 100));
  runs.push_back(in_launch(3, run("bb", 0, {6})));
  runs.push_back(in_launch(2, run("bb", 1, {50})));
  plans = join(set_, runs);
  EXPECT_DOUBLE_EQ(plans[0].relative->makespan.measured, 3);
  EXPECT_EQ(plans[1].runs.size(), 2u);
  ASSERT_TRUE(plans[1].relative.has_value());
  EXPECT_DOUBLE_EQ(plans[1].relative->makespan.measured, 1) << "only the run that has a control";
  const ControlRuns all = control_runs(set_, runs).value();
  EXPECT_EQ(all.runs, 3u);
  EXPECT_EQ(all.makespan.measured, 5);
  EXPECT_FALSE(control_runs(set_, {run("aa", 0, {6})}).has_value());
  EXPECT_FALSE(open().has("cc", 0));
}

TEST_F(Results, AreJudgedByTheObjective) {
  set_.judge = {"weighted", 0.25, 2};
  const std::vector<ValidatedPlan> plans = join(set_, {run("aa", 0, {4})});
  EXPECT_DOUBLE_EQ(plans[0].outcome.score.predicted, 0.25 * 2 + 2 * 0.4);
  EXPECT_DOUBLE_EQ(plans[0].outcome.score.measured, 0.25 * 4 + 2 * 0.5);
  const PlanSet read = std::move(*parse_plan_set(to_json(set_), "plans.json"));
  EXPECT_EQ(read.judge.objective, "weighted");
  EXPECT_EQ(read.judge.per_latency, 2);
}

// What a run looks like by itself does not matter: its processor may have been slow all the time.
TEST_F(Results, OfSlowProcessorsCountAsWellAndAreTold) {
  PlanRun slow = run("aa", 0, {7, 8, 9}), partly = run("aa", 1, {3, 4, 5, 9}), other = run("bb", 0, {5, 6});
  slow.calibrations_s["A"] = {1.5, 1.5, 1.5};
  partly.calibrations_s["A"] = {1, 1.01, 1.02, 1.5};  // slow from the end of the third one
  std::vector<ValidatedPlan> plans = join(set_, {slow, partly, other});
  EXPECT_EQ(plans[0].outcome.makespan.measured, 7);
  EXPECT_FALSE(plans[0].disturbed);
  plans = join(set_, {slow, other});
  EXPECT_EQ(plans[0].outcome.makespan.measured, 8);
  EXPECT_TRUE(plans[0].disturbed);
  EXPECT_FALSE(plans[1].disturbed);
}

TEST_F(Results, AnErrorIsForgottenOnceItWorks) {
  PlanRun failure;
  failure.fingerprint = "aa";
  failure.error = "it hung";
  EXPECT_EQ(join(set_, {failure, run("aa", 0, {1})})[0].error, "");
}

// What is slow in computing is in a plan's figures as far as computing is.
TEST_F(Results, APlanThatWaitsForLinksIsLessSlow) {
  set_.control = predicted("cc");
  set_.plans[0].makespan_by_computing = 0.5;
  set_.plans[0].latency_by_computing = 0;
  std::vector<PlanRun> runs = {control(1, 8), run("aa", 0, {6}), control(1, 8)};  // four times as slow
  runs[1].launch = 1;
  Outcome relative = join(set_, runs)[0].relative.value();
  EXPECT_DOUBLE_EQ(relative.makespan.measured, 3);
  EXPECT_DOUBLE_EQ(relative.latency.measured, 0.5);
  // If computing makes half of the control's time, it is sixteen times as slow.
  set_.control->makespan_by_computing = 0.5;
  relative = join(set_, runs)[0].relative.value();
  EXPECT_DOUBLE_EQ(relative.makespan.measured, 1.5);
  set_.control->makespan_by_computing = 0.4;
  EXPECT_FALSE(join(set_, runs)[0].relative.has_value()) << "the control mostly waits for links";
}

TEST_F(Results, ASetOfPlansSurvivesItsText) {
  set_.plans[0].makespan_by_computing = 0.75;
  const auto read = parse_plan_set(to_json(set_), "plans.json");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->model, "net");
  ASSERT_EQ(read->plans.size(), 2u);
  EXPECT_EQ(read->plans[0].makespan_by_computing, 0.75);
  EXPECT_EQ(read->plans[1].hosts, set_.plans[1].hosts);
  EXPECT_EQ(read->plans[1].timeline, set_.plans[1].timeline);
  EXPECT_FALSE(read->control.has_value());
  set_.control = predicted("cc");
  EXPECT_EQ(parse_plan_set(to_json(set_), "plans.json")->control->fingerprint, "cc");
  for (const char* wrong : {"", "[]", "{}", R"({"format": "nlsplit-plan-set", "version": 3})",
                            R"({"format": "nlsplit-plan-set", "version": 1, "plans": [{}]})"}) {
    const auto refused = parse_plan_set(wrong, "plans.json");
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr("plans.json: ")) << wrong;
  }
}

}  // namespace
}  // namespace nlsplit
