// Runs one of our programs as a user would, and says what came back.
#pragma once

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {

struct Outcome {
  int code = -1;  // exit code; -1: it died of a signal
  std::string out, err;
  long peak_kib = 0;  // of memory, of the largest process it was
};

// A folder of one's own for the time of a test. Threads of one test may make theirs at the same time.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / fmt::format("nlsplit-test-{}-{}", ::getpid(), next()++)) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    const Status status = write_file(*this / name, text);
    CHECK(status.ok(), "a test cannot write its files");
    return *this / name;
  }

 private:
  static std::atomic<int>& next() {
    static std::atomic<int> number = 0;
    return number;
  }
  std::filesystem::path path_;
};

// "nlsim rank x.yaml" through the shell, from the folder the programs are in.
inline Outcome run_command(const std::string& command) {
  const Scratch scratch;
  const std::string line = fmt::format("{} > {} 2> {}", command, scratch / "out", scratch / "err");
  const char* const arguments[] = {"sh", "-c", line.c_str(), nullptr};
  pid_t child = 0;
  int status = 0;
  rusage usage{};
  CHECK(::posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments), environ) == 0 &&
            ::wait4(child, &status, 0, &usage) == child,
        "a test cannot start a shell");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, value_of(read_file(scratch / "out")),
          value_of(read_file(scratch / "err")), usage.ru_maxrss};
}
inline Outcome nlsim(const std::string& arguments) {
  return run_command(fmt::format("{}/nlsim {}", NLS_BIN_DIR, arguments));
}
inline Outcome nlbench(const std::string& arguments) {
  return run_command(fmt::format("{}/nlbench {}", NLS_BIN_DIR, arguments));
}
inline Outcome mpirun(int ranks, const std::string& arguments) {
  // Open MPI itself keeps what it has allocated: no leaks of ours.
  return run_command(fmt::format("ASAN_OPTIONS=detect_leaks=0 mpirun {} --oversubscribe -np {} {}/nlbench {}",
                                 ::geteuid() == 0 ? "--allow-run-as-root" : "", ranks, NLS_BIN_DIR, arguments));
}

// A small scenario that every bad-input test breaks in one place: simple_cnn over three machines.
inline std::string small_scenario() {
  return R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 8, micro_batches: [1, 2, 4]}
devices:
  A: {host: a, kind: cpu, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  B: {host: b, kind: cpu, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  C: {host: c, kind: cpu, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 10us}
  - {between: [b, c], bandwidth: 1Gbps, latency: 10us}
source: a
sink: c
search: {splits: [layer, replicate], schedules: [streaming], keep: 5}
plans:
  mine: [..relu1@A, ..relu2@B, rest@C]
)";
}

inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos, "the test no longer fits its text");
  return text.replace(at, from.size(), to);
}

}  // namespace nlsplit
