// Messages of another type than the values: run, checked, measured and predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

struct Kind {
  std::string messages, type, plan, cast, back;
};

class ConvertedMessages : public ::testing::TestWithParam<Kind> {};

TEST_P(ConvertedMessages, AreMeasuredPredictedAndRun) {
  const Kind& kind = GetParam();
  Scratch scratch;
  std::string text = with(small_scenario(), "source: a", "network: {messages: " + kind.messages + "}\nsource: a");
  text = with(text, "[..relu1@A, ..relu2@B, rest@C]", kind.plan);
  const std::string scenario = scratch.write("converted.yaml", text);
  const std::string promise = "values travel between devices as " + kind.type;
  const Outcome checked = nlsim("check " + scenario + " --plan mine --json -");
  ASSERT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr(promise));
  for (const bool over_mpi : {false, true}) {
    const std::string run = "run " + scenario + " --plan mine --check --repeats 1";
    const Outcome ran = over_mpi ? mpirun(3, run) : nlbench(run + " --transport threads");
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr(promise));
  }
  for (int i = 0; i < 3; ++i)
    text = with(text, "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: profile.json");
  const std::string measured = scratch.write("measured.yaml", text), profile = scratch / "profile.json";
  const Outcome profiled = nlbench(fmt::format("profile {} -o {} --budget 1s", measured, profile));
  ASSERT_EQ(profiled.code, 0) << profiled.err;
  const std::string written = value_of(read_file(profile));
  EXPECT_THAT(written, HasSubstr(kind.cast));
  EXPECT_THAT(written, HasSubstr(kind.back));
  const Outcome ranked = nlsim("rank " + measured);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("measured, 0 by formula"));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConvertedMessages,
    ::testing::Values(Kind{"f16", "f16", "[..relu1@A, ..relu2@B, rest@C]", "Cast(f32[", "Cast(f16["},
                      Kind{"q8", "q8_0", "[..relu2@A, ..relu3@B, rest@C]", "Cast(f32[", "Cast(q8_0["}),
    [](const auto& info) { return info.param.messages; });

}  // namespace
}  // namespace nlsplit
