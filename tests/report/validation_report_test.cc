#include "report/validation/validation_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PredictedPlan predicted(size_t number, const std::string& text, double makespan) {
  PredictedPlan plan;
  plan.fingerprint = text;
  plan.number = number;
  plan.text = text;
  plan.devices = {"A"};
  plan.hosts = {"a"};
  plan.makespan_s = makespan;
  plan.throughput = 8 / makespan;
  plan.latency_mean_s = makespan / 2;
  plan.compute_s = {makespan};
  plan.timeline = R"({"devices": ["A"], "makespan_s": 1, "bars": []})";
  return plan;
}

PlanRun measured(const std::string& fingerprint, double makespan) {
  PlanRun run;
  run.fingerprint = fingerprint;
  run.makespans_s = {makespan};
  run.latency_mean_s = makespan / 2;
  run.compute_s = {makespan};
  run.timeline = R"({"devices": ["A</script>"], "makespan_s": 1, "bars": []})";
  return run;
}

class ValidationReport : public ::testing::Test {
 protected:
  ValidationReport() {
    PlanRun failure;
    failure.fingerprint = "C";
    failure.error = "exit code 1: no";
    runs_ = {measured("A", 1.1), measured("B", 2), failure};
    plans_ = join(set_, runs_);
  }
  PlanSet set_{"s.yaml", "net", 8, {predicted(1, "A", 1), predicted(2, "B", 2), predicted(0, "C", 3)}};
  std::vector<PlanRun> runs_;
  std::vector<ValidatedPlan> plans_;
};

TEST_F(ValidationReport, AsText) {
  const std::string text = validation_text(set_, plans_);
  EXPECT_THAT(text, HasSubstr("net · batch 8 · 2 of 3 plans measured"));
  EXPECT_THAT(text, HasSubstr("+10.0 %"));
  EXPECT_THAT(text, HasSubstr("throughput error   median 5.0 %, p90 9.0 %, largest 10.0 %"));
  EXPECT_THAT(text, HasSubstr("Kendall's tau 1.000 over 1 pair"));
  EXPECT_THAT(text, HasSubstr("best plan first  yes"));
  EXPECT_THAT(text, HasSubstr("judged by          throughput\n"));
  EXPECT_THAT(text, HasSubstr("1 plan failed (C): exit code 1: no"));
}

TEST_F(ValidationReport, AsJson) {
  const auto value = nlohmann::json::parse(validation_json(set_, plans_));
  EXPECT_EQ(value["plans"].size(), 3u);
  EXPECT_NEAR(value["plans"][0]["error"]["throughput"].get<double>(), 0.1, 1e-12);
  EXPECT_TRUE(value["plans"][2]["measured"].is_null());
  EXPECT_EQ(value["quality"]["kendall"]["tau"], 1);
  EXPECT_TRUE(value["quality"]["kendall_near_best"]["tau"].is_null());
}

TEST_F(ValidationReport, RelativeToTheControl) {
  set_.control = predicted(0, "one", 1);
  PlanRun control = measured("one", 1.1);
  control.control = true;
  runs_.insert(runs_.begin(), control);
  plans_ = join(set_, runs_);
  const ControlRuns all = control_runs(set_, runs_).value();
  const std::string text = validation_text(set_, plans_, {.control = &all});
  EXPECT_THAT(text,
              HasSubstr("control            one: predicted 8.00 samples/s, measured 7.27 in 1 run (±0.0 %), +10.0 %"));
  EXPECT_THAT(text, HasSubstr("  to the control   median 4.5 %, p90 8.2 %, largest 9.1 %"));
  EXPECT_THAT(text, HasSubstr("judged by          throughput, relative to the control"));
  const auto value = nlohmann::json::parse(validation_json(set_, plans_, {.control = &all}));
  EXPECT_NEAR(value["relative_quality"]["throughput_error"]["max"].get<double>(), 1 - 1 / 1.1, 1e-12);
  EXPECT_NEAR(value["plans"][0]["relative"]["makespan_s"].get<double>(), 1, 1e-12);
  EXPECT_EQ(value["control"]["runs"], 1);
}

TEST_F(ValidationReport, SaysWhichPlanIsTheBest) {
  Contest contest{.confidence = 0.9, .leader = 1, .left = {{1, 12, 0, 0}}, .out = {}};
  EXPECT_THAT(validation_text(set_, plans_, {.contest = &contest}),
              HasSubstr("best plan          plan 2, with 90 % confidence, after 12 rounds\n"));
  contest.left.push_back({0, 12, 0.001, 0.003});
  EXPECT_THAT(validation_text(set_, plans_, {.contest = &contest}),
              HasSubstr("plan 2, plan 1 are equal within 0.5 %, with 90 % confidence\n"));
  contest.left.push_back({2, 12, 0.01, 0.02});
  EXPECT_THAT(validation_text(set_, plans_, {.contest = &contest}),
              HasSubstr("one of plan 2, plan 1, C, with 90 % confidence; they differ by 3.0 % at most; more rounds"));
  const auto value = nlohmann::json::parse(validation_json(set_, plans_, {.contest = &contest}))["contest"];
  EXPECT_EQ(value["left"].size(), 3u);
  EXPECT_EQ(value["ends"], false);
}

TEST_F(ValidationReport, ByLatencyShowsLatencies) {
  set_.judge = {"latency", 0, 1};
  plans_ = join(set_, runs_);
  const std::string text = validation_text(set_, plans_);
  EXPECT_THAT(text, HasSubstr("550 ms"));
  EXPECT_THAT(text, HasSubstr("judged by          latency\n"));
}

TEST_F(ValidationReport, AsAPageOfItsOwn) {
  const std::string page = validation_html(set_, plans_);
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, Not(HasSubstr("@DATA@")));
  EXPECT_THAT(page, Not(HasSubstr("A</script>"))) << "a name must not end the script";
  EXPECT_THAT(page, HasSubstr("A\\u003c/script>"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, HasSubstr("\"timelines\""));
}

TEST_F(ValidationReport, OfNothingMeasured) {
  const std::vector<ValidatedPlan> none = join(set_, {});
  EXPECT_THAT(validation_text(set_, none), HasSubstr("0 of 3 plans measured"));
  EXPECT_TRUE(nlohmann::json::parse(validation_json(set_, none))["quality"].is_null());
}

}  // namespace
}  // namespace nlsplit
