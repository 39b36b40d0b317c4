// A folder with safetensors files as a user meets it: shown, run, ranked and run split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/npy.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string safe_models = NLS_SOURCE_DIR "/tests/graph/safetensors/";

TEST(SafetensorsFolder, RunsAsItsDefinitionSays) {
  const Scratch scratch;
  const Outcome run = nlbench(fmt::format(
      "run '{0}llama?length=7' --transport threads --repeats 1 --input input_ids={0}llama_input.npy --output {1}",
      safe_models, scratch / "y.npy"));
  ASSERT_EQ(run.code, 0) << run.err;
  const NpyArray made = value_of(read_npy(scratch / "y.npy")),
                 expected = value_of(read_npy(safe_models + "llama_output.npy"));
  ASSERT_EQ(made.shape, expected.shape);
  for (size_t i = 0; i < made.values.size(); ++i) ASSERT_NEAR(made.values[i], expected.values[i], 2e-5) << i;
}

TEST(SafetensorsFolder, IsPlannedAndRunsSplit) {
  const Scratch scratch;
  std::string text =
      with(small_scenario(), "zoo:simple_cnn", fmt::format("{{safetensors: '{}qwen2?length=5'}}", safe_models));
  text = text.substr(0, text.find("plans:"));
  const std::string scenario = scratch.write("s.yaml", text);
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  const Outcome run = nlbench(fmt::format("run {} --plan 1 --transport threads --repeats 1 --check", scenario));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("equal to the unsplit run, bit for bit"));
}

TEST(SafetensorsFolder, LeavesNoExtentOpen) {
  const Outcome shown = nlsim(fmt::format("show {}llama --dim length=7", safe_models));
  EXPECT_EQ(shown.code, 2);
  EXPECT_THAT(shown.err, HasSubstr("other models leave none"));
  const Outcome longer = nlsim(fmt::format("show {}llama", safe_models));
  EXPECT_EQ(longer.code, 2);
  EXPECT_THAT(longer.err, HasSubstr("config.json: /max_position_embeddings: 64, less than the 128 positions wanted"));
}

}  // namespace
}  // namespace nlsplit
