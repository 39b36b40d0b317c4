// nlsim rank's ways to search, to explain and to draw, as a user asks for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RankSearch : public ::testing::Test {
 protected:
  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
};

TEST_F(RankSearch, EveryMethodAnswersTheSameBest) {
  json best;
  for (const std::string method : {"auto", "exhaustive", "dp", "beam", "anneal"}) {
    const Outcome outcome = nlsim(fmt::format("rank {} --method {} --json -", scenario_, method));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json answer = json::parse(outcome.out);
    EXPECT_EQ(answer["method"], method);
    const double makespan = answer["plans"][0]["makespan_s"];
    if (best.is_null()) best = makespan;
    EXPECT_NEAR(makespan, best.get<double>(), 0.02 * best.get<double>()) << method;
  }
}

TEST_F(RankSearch, AnUnknownMethodIsRefused) {
  const Outcome outcome = nlsim("rank " + scenario_ + " --method magic");
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("magic"), HasSubstr("anneal")));
}

TEST_F(RankSearch, ExhaustiveSaysHowManyPlansThereAre) {
  std::string devices;
  for (int i = 0; i < 12; ++i) {
    devices +=
        fmt::format("  X{}: {{host: x{}, memory: 64MiB, costs: {{roofline: {{compute: {}GFLOPS, memory: 10GBps}}}}}}\n",
                    i, i, 10 + i);
  }
  std::string links = "links:\n";
  for (int i = 0; i < 12; ++i) links += fmt::format("  - {{between: [a, x{}], bandwidth: 1Gbps, latency: 10us}}\n", i);
  const std::string text =
      with(with(with(small_scenario(), "links:\n", devices + links), "zoo:simple_cnn", "zoo:resnet18"),
           "plans:\n  mine: [..relu1@A, ..relu2@B, rest@C]\n", "");
  const Outcome outcome = nlsim("rank " + scratch_.write("large.yaml", text) + " --method exhaustive");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("the space holds "), HasSubstr("an exhaustive search looks at no more than 4e+06")));
}

TEST_F(RankSearch, ExplainsAndDraws) {
  const std::string page = scratch_ / "page.html";
  const Outcome outcome = nlsim(fmt::format("rank {} --explain --html {}", scenario_, page));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\nplan 1   "), HasSubstr("         |"), HasSubstr("Plan 2 ")));
  EXPECT_THAT(value_of(read_file(page)), AllOf(HasSubstr("<svg"), HasSubstr("id=\"plan1\"")));
}

TEST_F(RankSearch, WeightsAndLimitsComeFromTheScenario) {
  const std::string text =
      with(small_scenario(), "keep: 5", "keep: 5, objective: {throughput: 0.7, latency: 0.3}, limits: {devices: 2}");
  const Outcome outcome = nlsim("rank " + scratch_.write("w.yaml", text) + " --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["objective"]["throughput"], 0.7);
  for (const json& plan : answer["plans"]) {
    if (plan["own"].get<bool>()) continue;
    std::set<std::string> devices;
    for (const json& stage : plan["stages"]) devices.insert(stage["devices"].begin(), stage["devices"].end());
    EXPECT_LE(devices.size(), 2u);
  }
}

TEST_F(RankSearch, ConfidenceNeedsSpreads) {
  const Outcome refused = nlsim("rank " + scenario_ + " --confidence 0.9");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, AllOf(HasSubstr("costs are not measured"), HasSubstr("nlbench profile")));
  EXPECT_THAT(nlsim("rank " + scenario_).out, HasSubstr("no error bars: costs are not measured"));

  const std::string learnt = scratch_.write("corrections.json", R"({
    "format": "nlsplit-corrections", "version": 2, "computing": {}, "messages": 1,
    "spreads": {"computing": {"A": 0.05, "B": 0.05, "C": 0.05}, "plans": 0.02}})");
  const std::string corrected = scratch_.write("c.yaml", small_scenario() + "corrections: corrections.json\n");
  const Outcome sure = nlsim("rank " + corrected + " --confidence 0.95 --json -");
  ASSERT_EQ(sure.code, 0) << sure.err;
  const json answer = json::parse(sure.out);
  EXPECT_EQ(answer["confidence"]["level"], 0.95);
  EXPECT_GE(answer["confidence"]["covered"].get<double>(), 0.95);
  EXPECT_FALSE(answer["confidence"]["set"].empty());
  // Those to measure come first in what is measured.
  const std::string dir = scratch_ / "set";
  const Outcome lowered =
      nlsim(fmt::format("lower {} --validation-set {} --top 1 --also 0 --confidence 0.95", corrected, dir));
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  const json set = json::parse(value_of(read_file(dir + "/plans.json")));
  EXPECT_EQ(set["draw"]["confidence"], 0.95);
  ASSERT_GE(set["plans"].size(), answer["confidence"]["set"].size());
  for (size_t i = 0; i < set["plans"].size(); ++i) {
    const bool in_set = i < answer["confidence"]["set"].size();
    EXPECT_EQ(set["plans"][i]["in_confidence_set"], in_set) << i;
    if (in_set) {
      EXPECT_EQ(set["plans"][i]["number"], answer["confidence"]["set"][i]);
    }
  }
  EXPECT_NE(nlsim("rank " + corrected + " --confidence 1.5").code, 0);
  EXPECT_NE(nlsim("rank " + corrected + " --confidence 0").code, 0);
}

}  // namespace
}  // namespace nlsplit
