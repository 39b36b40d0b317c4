// How runs end before their time: SIGTERM, SIGKILL, a full disk, another run on the same output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Waits until condition() holds, for so long at most.
template <class Condition>
bool comes_true(double limit_s, const Condition& condition) {
  for (const Clock::time_point begin = Clock::now(); !condition();) {
    if (seconds_since(begin) > limit_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

class Ends : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(scratch_ / "tmp"); }
  void TearDown() override {
    if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
  }

  // Its words and temporary files lie in our folder, so that all its processes can be told by that name.
  void start(const std::string& program, const std::string& arguments) {
    const std::string line = fmt::format("TMPDIR={0} ASAN_OPTIONS=detect_leaks=0 exec {1}/{2} {3} > {0}.out 2> {0}.err",
                                         scratch_ / "tmp", NLS_BIN_DIR, program, arguments);
    child_ = ::fork();
    if (child_ != 0) return;
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }

  struct End {
    int code = 0;
    double seconds = 0;
  };
  End send(int signal) {
    const Clock::time_point begin = Clock::now();
    ::kill(child_, signal);
    int status = 0;
    ::waitpid(std::exchange(child_, 0), &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), seconds_since(begin)};
  }

  // How many processes have our folder among their words, but for the first one.
  int children() const {
    int found = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(child_)) continue;
      const auto words = read_file(entry.path().string() + "/cmdline");
      found += words.ok() && words->find(scratch_ / "") != std::string::npos ? 1 : 0;
    }
    return found;
  }

  size_t files_in(const std::string& folder) const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(scratch_ / folder), fs::directory_iterator()));
  }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
  pid_t child_ = 0;
};

// A search that would take minutes.
std::string long_search() {
  return with(*read_file(NLS_SOURCE_DIR "/scenarios/four_machines.yaml"), "  keep: 20",
              "  max_candidates: 1000000\n  keep: 20");
}

// A sweep of many thousands of points.
std::string long_sweep() {
  std::string speeds = "1";
  for (int i = 1; i <= 3000; ++i) speeds += fmt::format(", {:.4f}", 0.0003 * i);
  return fmt::format(
      "scenario: {}/scenarios/experiments/training_links_scenario.yaml\ntier: simgrid\naxes:\n"
      "  schedule: [gpipe, 1f1b, zb_h1, interleaved, zb_v]\n  link_speed: [{}]\n",
      NLS_SOURCE_DIR, speeds);
}

// Whatever is ended here would take minutes on any machine.
TEST_F(Ends, WithinASecondOfSigterm) {
  const std::string slow = scratch_.write("slow.yaml", long_search());
  const std::string sweep = scratch_.write("sweep.yaml", long_sweep());
  struct Phase {
    std::string program, arguments;
    double after_s;
    double limit_s = 1;  // and what a busy machine needs
  };
  const std::string mpirun = fmt::format("mpirun --oversubscribe{}", ::geteuid() == 0 ? " --allow-run-as-root" : "");
  for (const Phase& phase :
       {Phase{"nlsim", "rank " + slow, 0.7},
        {"nlsim", "simulate " + slow, 0.7},
        {"nlsim", fmt::format("lower {} --save {}", slow, scratch_ / "saved"), 0.7},
        {"nlsim", fmt::format("sweep {} --fresh -o {}", sweep, scratch_ / "swept"), 0.5},
        {"nlbench", fmt::format("run {} --transport threads", slow), 0.7},
        {"nlbench", fmt::format("run {} --transport threads --duration 100s", scenario_), 1.5},
        {"nlbench", fmt::format("profile {} --budget 1000s -o {}", slow, scratch_ / "p.json"), 0.4},
        {"nlbench",
         fmt::format("validate {} -o {} --top 2 --also 0 --duration 100s --transport threads", scenario_,
                     scratch_ / "v"),
         2.5},
        // mpirun itself takes 1.1 s.
        {"nlbench",
         fmt::format("validate {} -o {} --top 2 --also 0 --duration 100s --launcher '{}'", scenario_, scratch_ / "w",
                     mpirun),
         4, 2}}) {
    SCOPED_TRACE(phase.program + " " + phase.arguments);
    start(phase.program, phase.arguments);
    std::this_thread::sleep_for(std::chrono::duration<double>(phase.after_s));
    const End end = send(SIGTERM);
    EXPECT_THAT(end.code, AnyOf(Eq(130), Eq(128 + SIGTERM))) << *read_file(scratch_ / "tmp.err");
    constexpr double busy_s = 1.5;
    EXPECT_LT(end.seconds, phase.limit_s + busy_s);
    EXPECT_TRUE(comes_true(1, [this] { return children() == 0; })) << children() << " processes are left";
    fmt::print("{:.2f} s  {} {}\n", end.seconds, phase.program, phase.arguments.substr(0, phase.arguments.find(' ')));
  }
}

// Only its parent's end reaches the child.
TEST_F(Ends, AKilledRunTakesItsChildrenAlong) {
  const std::string slow = scratch_.write("slow.yaml", long_search());
  start("nlbench", fmt::format("run {} --transport threads", slow));
  ASSERT_TRUE(comes_true(5, [this] { return children() > 0; })) << "nlsim plans";
  EXPECT_EQ(send(SIGKILL).code, 128 + SIGKILL);
  EXPECT_TRUE(comes_true(1, [this] { return children() == 0; })) << children() << " processes are left";
  // What it could not remove the next run does.
  EXPECT_EQ(files_in("tmp"), 1u);
  const Outcome next = run_command(fmt::format(
      "TMPDIR={} {}/nlbench run zoo:simple_cnn --transport threads --repeats 1", scratch_ / "tmp", NLS_BIN_DIR));
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_EQ(files_in("tmp"), 0u);
}

TEST_F(Ends, TheSecondRunOnOneOutputIsRefused) {
  start("nlbench", fmt::format("profile {} --budget 100s -o {}", scenario_, scratch_ / "p.json"));
  ASSERT_TRUE(comes_true(10, [this] { return fs::exists(scratch_ / "p.json.nlsplit-lock"); }));
  const std::string second = fmt::format("profile {} --budget 1s -o {}", scenario_, scratch_ / "p.json");
  const Outcome refused = nlbench(second);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr(fmt::format("another run is writing to '{}' (process {} on ", scratch_ / "p.json", child_)));
  send(SIGKILL);
  const Outcome taken = nlbench(second);
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_FALSE(fs::exists(scratch_ / "p.json.nlsplit-lock"));
}

// A limit on the size of files stands for a disk that is full: 512 bytes.
TEST_F(Ends, AFullDiskNamesTheFileAndLeavesNothing) {
  ASSERT_EQ(nlsim(fmt::format("lower {} --plan mine --save {}", scenario_, scratch_ / "saved")).code, 0);
  fs::create_directories(scratch_ / "out");
  const std::string out = scratch_ / "out/x",
                    run = "nlbench run " + (scratch_ / "saved --transport threads --repeats 1");
  for (const std::string& command :
       {"nlsim rank " + scenario_ + " --json " + out, "nlsim rank " + scenario_ + " --csv " + out,
        "nlsim rank " + scenario_ + " --html " + out, "nlsim simulate " + scenario_ + " --trace " + out,
        "nlsim lower " + scenario_ + " --save " + out, std::string("nlsim export zoo:simple_cnn -o ") + out,
        run + " --json " + out, run + " --trace " + out}) {
    SCOPED_TRACE(command);
    const Outcome outcome = run_command(fmt::format("(ulimit -f 1; {}/{} > /dev/null)", NLS_BIN_DIR, command));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: cannot write '" + out));
    EXPECT_EQ(files_in("out"), 0u);
  }
  const Outcome no_output = run_command(fmt::format("({}/nlsim zoo > /dev/full)", NLS_BIN_DIR));
  EXPECT_EQ(no_output.code, 2);
  EXPECT_THAT(no_output.err, HasSubstr("cannot write to standard output"));
}

}  // namespace
}  // namespace nlsplit
