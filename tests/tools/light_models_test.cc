// Networks nobody here wrote, with weights, against ONNX Runtime: through the programs, unsplit and split over three
// devices. scripts/reference_outputs makes the references (it needs the shared models and PyPI); without them these
// tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/npy.h"
#include "kernels/module/kernel_library.h"
#include "testing/paths.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

class LightModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    reference_ = fmt::format("{}/build/reference/{}", NLS_SOURCE_DIR, GetParam());
    if (!fs::exists(reference_ + "/output.npy")) GTEST_SKIP() << "no reference: run scripts/reference_outputs";
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "too slow under this sanitizer; smaller networks run there";
#endif
    scratch_ = fs::temp_directory_path() / fmt::format("nlsplit-light-{}-{}", GetParam(), ::getpid());
    fs::create_directories(scratch_);
  }
  void TearDown() override {
    if (!scratch_.empty()) fs::remove_all(scratch_);
  }

  void expect_reference(const std::string& what) {
    const std::string output = scratch_ / "output.npy";
    const std::string command = fmt::format(
        "{}/nlbench run {} --transport threads --repeats 1 --warmup 0 --input {}/input.npy --output {} > {} 2>&1",
        NLS_BIN_DIR, what, reference_, output, (scratch_ / "log").string());
    ASSERT_EQ(std::system(command.c_str()), 0) << command << "\n" << value_of(read_file(scratch_ / "log"));
    const auto got = read_npy(output), want = read_npy(reference_ + "/output.npy");
    ASSERT_TRUE(got.ok() && want.ok());
    ASSERT_EQ(got->values.size(), want->values.size());
    for (size_t i = 0; i < want->values.size(); ++i) {
      ASSERT_NEAR(got->values[i], want->values[i], 1e-7 + 1e-3 * std::abs(want->values[i])) << "at " << i;
    }
  }

  std::string reference_;
  fs::path scratch_;
};

TEST_P(LightModels, UnsplitIsWhatOnnxRuntimeComputesAtEveryLevel) {
  for (const Isa isa : supported_levels()) {
    SCOPED_TRACE(name_of(isa));
    expect_reference(fmt::format("{}/model.onnx --isa {}", reference_, name_of(isa)));
  }
}

TEST_P(LightModels, SplitIsWhatOnnxRuntimeComputes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "ranking them is too slow under this sanitizer; smaller networks run there";
#endif
  const std::string scenario = scratch_ / "split.yaml";
  ASSERT_TRUE(write_file(scenario, fmt::format(R"(model: {}/model.onnx
workload: {{mode: inference, batch: 1, micro_batches: [1]}}
devices:
  A: &machine {{host: a, kind: cpu, memory: 8GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
  B: {{<<: *machine, host: b}}
  C: {{<<: *machine, host: c}}
links:
  - {{between: [a, b], bandwidth: 1Gbps, latency: 50us}}
  - {{between: [b, c], bandwidth: 1Gbps, latency: 50us}}
source: a
sink: c
search: {{splits: [layer], schedules: [streaming], keep: 200}}
)",
                                               reference_))
                  .ok());
  const std::string csv = scratch_ / "plans.csv";
  ASSERT_EQ(std::system(fmt::format("{}/nlsim rank {} --csv {} > /dev/null", NLS_BIN_DIR, scenario, csv).c_str()), 0);
  // The best plan of three stages.
  const auto lines = read_file(csv);
  ASSERT_TRUE(lines.ok());
  std::string three;
  for (size_t at = 0, end = 0; three.empty() && at < lines->size(); at = end + 1) {
    end = std::min(lines->find('\n', at), lines->size());
    const std::string line = lines->substr(at, end - at);
    if (std::count(line.begin(), line.end(), '|') == 2) three = line.substr(0, line.find(','));
  }
  ASSERT_FALSE(three.empty()) << *lines;
  expect_reference(scenario + " --plan " + three);
}

INSTANTIATE_TEST_SUITE_P(Shared, LightModels,
                         ::testing::Values("light_resnet50", "light_squeezenet", "light_vgg19", "light_bvlc_alexnet"));

}  // namespace
}  // namespace nlsplit
