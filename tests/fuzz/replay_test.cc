// Every input of tests/fuzz/corpus once through its fuzz target: what a fuzzer found worth keeping, and what it found.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "fuzz/targets.h"
#include "testing/paths.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define NLS_DECLARE(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size);
NLS_FUZZ_TARGETS(NLS_DECLARE)

namespace nlsplit {
namespace {

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

// A finding ends the program: this says which input it was.
const char* current = "";

void say_current() { std::fprintf(stderr, "fuzz input: %s\n", current); }
void die(int signal) {
  say_current();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, Corpus) {
  std::signal(SIGABRT, die);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(say_current);
#else
  std::signal(SIGSEGV, die);
#endif
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(NLS_SOURCE_DIR "/tests/fuzz/corpus/") + GetParam().name)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty());
  for (const std::string& file : files) {
    const auto content = read_file(file);
    ASSERT_TRUE(content.ok()) << content.error().message;
    current = file.c_str();
    EXPECT_EQ(GetParam().run(reinterpret_cast<const uint8_t*>(content->data()), content->size()), 0) << file;
  }
  current = "none";
}

#define NLS_TARGET(name) Target{#name, fuzz_##name},
const Target targets[] = {NLS_FUZZ_TARGETS(NLS_TARGET)};
INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(targets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nlsplit
