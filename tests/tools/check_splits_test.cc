// Networks split inside their layers, run in threads and over MPI, against the unsplit network: scripts/check_splits,
// the short form. The whole of it is run by hand; its table stands in docs/plans.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

Outcome check_splits(const std::string& arguments) {
  return run_command(
      fmt::format("BUILD_DIR={}/.. python3 {}/scripts/check_splits {}", NLS_BIN_DIR, NLS_SOURCE_DIR, arguments));
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

class CheckSplits : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (run_command("python3 --version").code != 0) GTEST_SKIP() << "scripts/check_splits needs python3";
  }
};

TEST_P(CheckSplits, ResultsAreThoseOfTheUnsplitNetwork) {
  const Outcome checked = check_splits(fmt::format("--short --models {}", GetParam()));
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_GE(count(checked.out, fmt::format("| {} |", GetParam())), 4u) << checked.out;  // a row for each split
  EXPECT_NE(checked.out.find("; 0 failed"), std::string::npos) << checked.out;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Networks, CheckSplits, ::testing::Values("simple_cnn"));  // ten times slower
#else
INSTANTIATE_TEST_SUITE_P(Networks, CheckSplits,
                         ::testing::Values("simple_cnn", "resnet18", "mobilenet_v2", "gpt2", "llama"),
                         [](const auto& info) { return std::string(info.param); });
#endif

// What the table rests on: a plan that cannot be run is said to fail, by its name, and the exit code says so.
TEST(CheckSplitsScript, WhatCannotBeRunFails) {
  if (run_command("python3 --version").code != 0) GTEST_SKIP() << "scripts/check_splits needs python3";
  const Outcome checked = check_splits("--models simple_cnn --splits height --devices 9 --mpi none");
  EXPECT_EQ(checked.code, 1) << checked.out << checked.err;
  EXPECT_NE(checked.out.find("| simple_cnn | height | **fails** |"), std::string::npos) << checked.out;
  EXPECT_NE(checked.err.find("simple_cnn, height, 9 devices: "), std::string::npos) << checked.err;
}

}  // namespace
}  // namespace nlsplit
