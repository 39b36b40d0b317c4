// A GGUF file as a user meets it: shown, run, ranked and run split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/npy.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string gguf_files = NLS_SOURCE_DIR "/tests/graph/gguf/";

TEST(Gguf, IsShown) {
  const Outcome shown = nlsim(fmt::format("show '{}qwen3.gguf?length=7' --fused", gguf_files));
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("graph \"qwen3\"\ninput %input_ids i64[1,7]"));
}

TEST(Gguf, RunsAsItsDefinitionSays) {
  const Scratch scratch;
  for (const char* name : {"llama", "qwen2", "qwen3", "qwen3moe", "gemma"}) {
    SCOPED_TRACE(name);
    const Outcome run =
        nlbench(fmt::format("run '{0}{1}.gguf?length=7&weights=f32' --transport threads --repeats 1 --input "
                            "input_ids={0}{1}_input.npy --output {2}",
                            gguf_files, name, scratch / "y.npy"));
    ASSERT_EQ(run.code, 0) << run.err;
    const NpyArray made = value_of(read_npy(scratch / "y.npy")),
                   expected = value_of(read_npy(gguf_files + name + "_output.npy"));
    ASSERT_EQ(made.shape, expected.shape);
    for (size_t i = 0; i < made.values.size(); ++i) ASSERT_NEAR(made.values[i], expected.values[i], 2e-5) << i;
  }
}

TEST(Gguf, TakesTokensFromTheCommandLine) {
  const std::string run = fmt::format("run '{}llama.gguf?length=3' --transport threads --repeats 1 ", gguf_files);
  const Outcome listed = nlbench(run + "--input input_ids=1,2,3");
  EXPECT_EQ(listed.code, 0) << listed.err;
  const Outcome few = nlbench(run + "--input input_ids=1,2");
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, HasSubstr("2 values where there must be 3"));
}

TEST(Gguf, IsPlannedAndRunsSplit) {
  const Scratch scratch;
  std::string text = with(small_scenario(), "zoo:simple_cnn", fmt::format("'{}qwen2.gguf?length=5'", gguf_files));
  text = text.substr(0, text.find("plans:"));
  const std::string scenario = scratch.write("s.yaml", text);
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  const Outcome run = nlbench(fmt::format("run {} --plan 1 --transport threads --repeats 1 --check", scenario));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("equal to the unsplit run, bit for bit"));
}

// Its metadata ranks; what runs needs the rest.
TEST(Gguf, CutOffIsPlannedButDoesNotRun) {
  const Scratch scratch;
  const std::string all = value_of(read_file(gguf_files + "gemma.gguf"));
  const std::string cut = scratch.write("cut.gguf", all.substr(0, all.size() - 5000));
  const Outcome shown = nlsim(fmt::format("show '{}?length=7' --memory", cut));
  EXPECT_EQ(shown.code, 0) << shown.err;
  const Outcome run = nlbench(fmt::format("run '{}?length=7' --transport threads --repeats 1", cut));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("cut.gguf: tensor "));
  EXPECT_THAT(run.err, HasSubstr("the file is cut off"));
}

TEST(Gguf, LeavesNoExtentOpen) {
  const Outcome shown = nlsim(fmt::format("show {}llama.gguf --dim length=7", gguf_files));
  EXPECT_EQ(shown.code, 2);
  EXPECT_THAT(shown.err, HasSubstr("other models leave none"));
  const Outcome run = nlbench(fmt::format("run {}llama.ggf --transport threads", gguf_files));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("nor a model (*.onnx, *.gguf, zoo:NAME"));
}

}  // namespace
}  // namespace nlsplit
