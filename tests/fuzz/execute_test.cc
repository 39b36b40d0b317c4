// The watch over executions that the fuzzers rely on: it runs what is sound, and sees what is not.
#include "fuzz/execute.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "kernels/cpu.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/paths.h"

namespace nlsplit::fuzz {
namespace {

Program parsed(const std::string& text) {
  auto program = parse_program(text, "test.nls");
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  return program.ok() ? *program : Program();
}

bool executed(const Program& program) { return execute_watched(program, seeded_contents(program, 1), 1); }

TEST(ExecuteWatched, RunsTheContractPrograms) {
  if (!cpu_supports(Isa::v2)) GTEST_SKIP() << "their kernels are for x86-64";
  for (const char* name : {"instances", "interleaved", "replicas", "ring_all_reduce"}) {
    const auto text = read_file(std::string(NLS_SOURCE_DIR "/tests/programs/") + name + ".nls");
    ASSERT_TRUE(text.ok()) << name;
    const Program program = parsed(*text);
    ASSERT_TRUE(verify(program).ok()) << name;
    EXPECT_TRUE(executed(program)) << name;
  }
}

TEST(ExecuteWatched, LeavesOutWhatIsLarge) {
  EXPECT_FALSE(executed(parsed(R"(nlsplit program 1
program p batch 1 micro_batches 1
device A cpu host a isa v2 memory 4194304
  buffer x f32[1,262144] input
  buffer y f32[1,262144] output
  segment F stage 0 phase F
    y = copy(x)
  order
    F.0
)")));
}

// Not verified: a result that is larger than its buffer.
TEST(ExecuteWatchedDeathTest, SeesAWriteBehindAResult) {
  if (!cpu_supports(Isa::v2)) GTEST_SKIP() << "their kernels are for x86-64";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Program program = parsed(R"(nlsplit program 1
program p batch 1 micro_batches 1
device A cpu host a isa v2 memory 4194304
  buffer x f32[1,64] input at 0
  buffer y f32[1,64] scratch at 256
  buffer z f32[1,64] output at 512
  segment F stage 0 phase F
    y = Relu(x) kernel unary_v2
    z = copy(y)
  order
    F.0
)");
  EXPECT_TRUE(executed(program));
  for (ComputeDesc& desc : program.descs) desc.outputs[0].shape = desc.inputs[0].shape = {1, 80};
  EXPECT_DEATH(executed(program), "use-after-poison|writes byte");
}

}  // namespace
}  // namespace nlsplit::fuzz
