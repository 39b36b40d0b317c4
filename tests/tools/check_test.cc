// nlsim check, and split plans through every command: planned, saved, run and compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string split_scenario() {
  return with(small_scenario(), "  mine: [..relu1@A, ..relu2@B, rest@C]\n",
              "  mine: [..relu1@A, ..relu2@B, rest@C]\n"
              "  rows: [..relu2@height(A:2+B), rest@C]\n"
              "  again: [..relu2@height-recompute(A+B), rest@C]\n"
              "  samples: [rest@batch(A+B)]\n"
              "  channels: [..relu2@channels(A+B+C), rest@A]\n"
              "  matrices: [..relu2@A, rest@tensor(B+C)]\n");
}

class Check : public ::testing::Test {
 protected:
  json answer(const std::string& arguments, int code = 0) {
    const Outcome outcome = nlsim(fmt::format("check {} {} --json -", scenario_, arguments));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return json::parse(outcome.out);
  }
  std::string plan_file(const std::string& stages) {
    return "--plan-file " + scratch_.write("mine.yaml", "name: mine\nstages: " + stages + "\n");
  }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", split_scenario());
};

TEST_F(Check, SaysHowGoodAPlanIs) {
  const Outcome outcome = nlsim(fmt::format("check {} --plan rows", scenario_));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("rows: height(A:2+B) ..relu2 | C rest · "));
  for (const char* part : {"\nspeed    ", "\nmemory   ", "\nresults  ", "\nplace    ",
                           " simulated plans, best throughput first\n", "\nbound    Plan ", "\nbest     "})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Check, TheSameAsJson) {
  const json file = answer(plan_file("[..relu2@height(A:2+B), rest@C]"));
  EXPECT_EQ(file.at("format"), "nlsplit-check");
  ASSERT_EQ(file.at("plans").size(), 1u);
  const json& plan = file.at("plans").at(0);
  EXPECT_EQ(plan.at("name"), "mine");
  EXPECT_EQ(plan.at("sound"), true);
  EXPECT_EQ(plan.at("stages"), (json{"..relu2@height(A:2+B)", "rest@C"}));
  EXPECT_GE(plan.at("place"), 1);
  EXPECT_GE(plan.at("simulated"), plan.at("place"));
  EXPECT_LE(plan.at("figures").at("throughput_per_s"), plan.at("best").at("figures").at("throughput_per_s"));
  // The place and figures are those that rank gives it.
  const Outcome rank = nlsim(fmt::format("rank {} --json -", scenario_));
  ASSERT_EQ(rank.code, 0) << rank.err;
  const json ranking = json::parse(rank.out);
  double best = 0;
  for (const json& ranked : ranking.at("plans")) {
    if (ranked.at("name") == "rows") best = std::max(best, ranked.at("throughput_per_s").get<double>());
  }
  EXPECT_EQ(plan.at("figures").at("throughput_per_s"), best);
}

TEST_F(Check, EveryPlanOfTheScenarioWhereNoneIsNamed) {
  const json plans = answer("").at("plans");
  ASSERT_EQ(plans.size(), 6u);
  for (const json& plan : plans) EXPECT_EQ(plan.at("sound"), true) << plan;
}

TEST_F(Check, SaysWhatIsWrong) {
  const auto refused = [&](const std::string& stages, const std::string& message) {
    const Outcome outcome = nlsim(fmt::format("check {} {}", scenario_, plan_file(stages)));
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(StartsWith("error: " + (scratch_ / "mine.yaml") + ":2:"), HasSubstr(message)));
  };
  refused("[..relu9@A, rest@B]", "no layer is called 'relu9'");
  refused("[rest@hight(A+B)]", "did you mean 'height'?");
  refused("[rest@height(A:0+B)]", "the share of A must be a whole number from 1");
  refused("[\"rest@height(A+B\"]", "the ')' of 'height(' is missing");
  refused("[rest@sequence(A+B)]", "sequence");
}

TEST_F(Check, WhatIsWrongAsJson) {
  const json plan = answer(plan_file("[rest@height(A+X)]"), 2).at("plans").at(0);
  EXPECT_EQ(plan.at("sound"), false);
  ASSERT_EQ(plan.at("wrong").size(), 1u);
  EXPECT_THAT(plan.at("wrong").at(0).at("message").get<std::string>(), HasSubstr("no device is called 'X'"));
}

TEST_F(Check, MemoryThatDoesNotSufficeIsNamed) {
  const std::string small = scratch_.write("small.yaml", with(split_scenario(), "B: {host: b, kind: cpu, memory: 64MiB",
                                                              "B: {host: b, kind: cpu, memory: 1KiB"));
  const Outcome outcome = nlsim(fmt::format("check {} --plan mine", small));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("plan mine does not fit in 1 micro-batch: B has 1 KiB and would need "));
}

// Two devices of one host, and no link within it.
TEST_F(Check, ALinkThatIsMissingIsNamed) {
  std::string text = split_scenario();
  text = with(text, "  C: {host: c",
              "  B2: {host: b, kind: cpu, memory: 64MiB, isa: v2, costs: {roofline: {compute: "
              "10GFLOPS, memory: 10GBps}}}\n  C: {host: c");
  const std::string file = scratch_.write("linkless.yaml", text);
  const Outcome outcome = nlsim(fmt::format("check {} {}", file, plan_file("[..relu2@height(B+B2), rest@C]")));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("devices 'B' and 'B2' are both on host 'b', but no link says how fast they "
                                     "exchange data: add {between: [b, b]"));
  EXPECT_THAT(outcome.err, StartsWith("error: "));
}

TEST_F(Check, AsksForAPlanThatIsThere) {
  const Outcome outcome = nlsim(fmt::format("check {} --plan yours", scenario_));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("has no plan called yours; it has mine, rows, again, samples, channels, matrices"));
}

// --check holds each to what it promises, and the promise is in the saved folder.
TEST_F(Check, SplitPlansRunAndKeepTheirPromise) {
  for (const char* plan : {"rows", "again", "samples", "channels", "matrices"}) {
    SCOPED_TRACE(plan);
    const std::string folder = scratch_ / plan, figures = folder + ".json";
    const Outcome lower = nlsim(fmt::format("lower {} --plan {} --save {}", scenario_, plan, folder));
    ASSERT_EQ(lower.code, 0) << lower.err;
    const Outcome run =
        nlbench(fmt::format("run {} --transport threads --repeats 1 --warmup 0 --check --json {}", folder, figures));
    ASSERT_EQ(run.code, 0) << run.err;
    const json check = json::parse(value_of(read_file(figures))).at("check");
    EXPECT_EQ(check.at("equal"), true);
    const bool promised = std::filesystem::exists(folder + "/promise.json");
    EXPECT_EQ(check.at("tolerance"), promised ? 1e-4 : 0);
    if (plan == std::string("matrices")) {
      EXPECT_TRUE(promised);
      EXPECT_EQ(check.at("tolerance_because"), "partial sums are added in the order of the shards");
    }
    if (plan == std::string("samples")) {
      EXPECT_FALSE(promised);
    }
  }
}

// What was measured suffices to time every own split plan: a cost that is missing would be an error.
TEST_F(Check, ProfilesHoldTheKernelsOfSplitPlans) {
  std::string text = with(split_scenario(), "micro_batches: [1, 2, 4]", "micro_batches: [2]");
  const std::string plain = scratch_.write("plain.yaml", text), profile = scratch_ / "p.json";
  const Outcome measured = nlbench(fmt::format("profile {} -o {} --budget 2s", plain, profile));
  ASSERT_EQ(measured.code, 0) << measured.err;
  for (int device = 0; device < 3; ++device)
    text = with(text, "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json");
  const std::string costed = scratch_.write("costed.yaml", text);
  for (const char* plan : {"rows", "again", "samples", "channels", "matrices"}) {
    const Outcome outcome = nlsim(fmt::format("simulate {} --plan {}", costed, plan));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

TEST_F(Check, EveryCommandTakesASplitPlan) {
  for (const char* arguments :
       {"simulate {} --plan rows", "show {} --memory --plan rows", "lower {} --plan rows", "schedule {} --plan rows"}) {
    const Outcome outcome = nlsim(fmt::format(fmt::runtime(arguments), scenario_));
    EXPECT_EQ(outcome.code, 0) << arguments << outcome.err;
    EXPECT_NE(outcome.out, "");
  }
  const json timing = json::parse(nlsim(fmt::format("simulate {} --plan rows --json -", scenario_)).out);
  EXPECT_EQ(timing.at("plan"), "height(A:2+B) ..relu2 | C rest");
  const std::string trace = scratch_ / "t.json";
  EXPECT_EQ(nlsim(fmt::format("simulate {} --plan rows --trace {}", scenario_, trace)).code, 0);
  EXPECT_THAT(value_of(read_file(trace)), HasSubstr("conv1#0"));
}

TEST_F(Check, SavedPlansReadBack) {
  const std::string dir = scratch_ / "plans";
  ASSERT_EQ(nlsim(fmt::format("rank {} --save-plans {}", scenario_, dir)).code, 0);
  size_t splits = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string text = value_of(read_file(entry.path()));
    if (text.find('(') == std::string::npos) continue;
    ++splits;
    const json plan = answer("--plan-file " + entry.path().string()).at("plans").at(0);
    EXPECT_EQ(plan.at("sound"), true) << text;
  }
  EXPECT_GE(splits, 5u);
}

}  // namespace
}  // namespace nlsplit
