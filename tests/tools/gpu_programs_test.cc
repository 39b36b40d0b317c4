// What scripts/check_gpu runs on machines with a GPU, here with the CPU in its place: saved Programs, times, overlap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string programs = std::string(NLS_SOURCE_DIR) + "/tests/gpu/programs/";

Outcome gpu_check(const std::string& arguments) {
  return run_command(fmt::format("{}/gpu_check {}", NLS_BIN_DIR, arguments));
}

class SavedForGpus : public ::testing::TestWithParam<const char*> {};

TEST_P(SavedForGpus, AreWhatNlsimWrites) {
  const Outcome lowered = nlsim("lower --plan fixture " + programs + GetParam() + ".yaml");
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  EXPECT_EQ(lowered.out, value_of(read_file(programs + GetParam() + "/program.nls")))
      << "run scripts/save_gpu_programs";
}

TEST_P(SavedForGpus, GiveWhatIsExpected) {
  const Outcome run = gpu_check("--cpu run " + programs + GetParam());
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  for (const char* how : {", one by one: ", ", graphs: ", ", untimed graphs: "}) EXPECT_THAT(run.out, HasSubstr(how));
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("equal against "), Not(HasSubstr("DIFFERS")), Not(HasSubstr("beyond the tolerance"))));
}

TEST_P(SavedForGpus, OtherResultsAreFound) {
  const Scratch scratch;
  std::filesystem::copy(programs + GetParam(), scratch / "p");
  NpyArray expected = value_of(read_npy(scratch / "p/expected.npy"));
  expected.values.back() += 1;
  ASSERT_TRUE(write_npy(scratch / "p/expected.npy", expected).ok());
  const Outcome run = gpu_check("--cpu run " + scratch / "p");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.out, HasSubstr("DIFFERS against "));
  std::filesystem::remove(scratch / "p/expected.npy");
  const Outcome alone = gpu_check("--cpu run " + scratch / "p");
  EXPECT_EQ(alone.code, 0) << alone.out << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("nothing from another machine to compare with"));
}

INSTANTIATE_TEST_SUITE_P(All, SavedForGpus, ::testing::Values("vit_halves", "gpt2_tensor"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuCheck, ComparesGeneratedKernels) {
  const Outcome run = gpu_check("--cpu generated 1 1");
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("generated kernels of "), Not(HasSubstr("DIFFERS"))));
}

TEST(GpuCheck, RefusesWhatIsNoProgramForGpus) {
  const Scratch scratch;
  ASSERT_EQ(nlsim("lower zoo:simple_cnn --save " + scratch / "cpu").code, 0);
  const Outcome cpu = gpu_check("--cpu run " + scratch / "cpu");
  EXPECT_EQ(cpu.code, 2);
  EXPECT_THAT(cpu.err, HasSubstr("no device of kind cuda is in this program"));
  const Outcome nothing = gpu_check("--cpu run " + scratch / "nothing");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("is not a folder that `nlsim lower --save` has written"));
  EXPECT_EQ(gpu_check("--cpu run").code, 2);
}

TEST(GpuCheck, SaysHowMuchOfCopyingIsHidden) {
  const Outcome overlap = gpu_check("--cpu overlap");
  ASSERT_EQ(overlap.code, 0) << overlap.err;
  for (const char* row : {"pageable        in ", "pageable       out ", "pageable   in, out ", "pinned        in ",
                          "pinned       out ", "pinned   in, out "})
    EXPECT_THAT(overlap.out, HasSubstr(row));
}

TEST(GpuCheck, TimesWholeNetworks) {
  const Outcome timed = gpu_check("--cpu time simple_cnn 2 tf32 1");
  ASSERT_EQ(timed.code, 0) << timed.err;
  const nlohmann::json answer = nlohmann::json::parse(timed.out);
  EXPECT_EQ(answer["graphs"], true);
  EXPECT_GE(answer["times_s"].size(), 5u);
  for (const nlohmann::json& time : answer["times_s"]) EXPECT_GT(time.get<double>(), 0);
  EXPECT_EQ(nlohmann::json::parse(gpu_check("--cpu time simple_cnn 2 tf32 1 off").out)["graphs"], false);
  for (const char* wrong : {"simple_cnn 2", "simple_cnn 0 tf32", "simple_cnn 2 v3", "simple_cnn 2 cuda 1 often"})
    EXPECT_EQ(gpu_check(std::string("--cpu time ") + wrong).code, 2) << wrong;
}

TEST(ComparePyTorchGpu, SaysWhatIsMissing) {
  if (std::system("command -v nvidia-smi > /dev/null") == 0) GTEST_SKIP() << "there is a driver: it would run";
  const Outcome outcome = run_command(std::string(NLS_SOURCE_DIR) + "/scripts/compare_pytorch_gpu");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no GPU: there is no nvidia-smi"));
}

}  // namespace
}  // namespace nlsplit
