// nlbench with kernels that never return, and with planners that do not: all ranks end in time, with one message, exit
// code 3, and records that say whose fault it was.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "exec/programs.h"
#include "program/saved.h"
#include "testing/paths.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct StuckOutcome {
  int code = -1;
  std::string text;  // stdout and stderr
  double seconds = 0;
};

StuckOutcome run_shell(const std::string& command) {
  const auto begin = Clock::now();
  StuckOutcome outcome;
  std::FILE* pipe = ::popen(("(" + command + ") 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return outcome;
}

// A copy of nlbench whose kernels get stuck, in a folder of its own.
class StuckRun : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "limits of half a second are no test of programs that a sanitizer makes many times slower";
#endif
    std::string name = "/tmp/nlbench-stuck-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    const fs::path bin = NLS_BIN_DIR, lib = bin.parent_path() / "lib", own = dir_;
    fs::create_directories(own / "bin");
    fs::create_directories(own / "lib");
    fs::copy_file(bin / "nlbench", own / "bin/nlbench");
    fs::create_symlink(lib / "libstuck_kernels.so", own / "lib/libnlsplit_kernels_v2.so");
    environment_ = "cd " + dir_ + " && STUCK_REAL=" + (lib / "libnlsplit_kernels_v2.so").string() + " ";
    SavedProgram saved{program_of("interleaved"), program_of("interleaved_unsplit"), false, {}};
    WeightStore store;
    for (Program* program : {&saved.program, &saved.unsplit}) {
      for (DeviceProgram& device : program->devices) {
        for (Buffer& buffer : device.buffers) {
          if (buffer.has_content) buffer.content = store.add_random(buffer.type, buffer.content.value, 1.0f);
        }
      }
    }
    const Status status = save_program(dir_ + "/saved", saved, store);
    ASSERT_TRUE(status.ok()) << status.error().to_string();
    std::ofstream(dir_ + "/s.yaml") << "nobody reads it";
  }
  void TearDown() override {
    if (!dir_.empty()) fs::remove_all(dir_);
  }

  std::string mpirun(const std::string& how) const {
    return environment_ + how + " mpirun --oversubscribe " + (::geteuid() == 0 ? "--allow-run-as-root " : "") +
           "--mca btl_vader_single_copy_mechanism none -np 2 bin/nlbench run ";
  }
  std::string read(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void expect_one_message(const StuckOutcome& run, const std::string& what) const {
    EXPECT_EQ(run.code, 3) << run.text;
    const size_t first = run.text.find("error: ");
    ASSERT_NE(first, std::string::npos) << run.text;
    EXPECT_EQ(run.text.find("error: ", first + 1), std::string::npos) << run.text;
    EXPECT_THAT(run.text, HasSubstr(what));
  }

  std::string dir_, environment_;
};

TEST_F(StuckRun, AKernelThatSpinsOnOneRank) {
  const StuckOutcome run = run_shell(mpirun("STUCK_RANK=1 STUCK_AFTER=5 STUCK_HOW=spin") +
                                     "saved --deadline-floor 0.5 --watchdog 5 --json r.json");
  expect_one_message(run, "device B slot ");
  EXPECT_THAT(run.text, AllOf(HasSubstr("does not end"), HasSubstr("nlbench explain-failure r.json.flight")));
  EXPECT_LT(run.seconds, 20);
  const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure r.json.flight --json why.json");
  EXPECT_EQ(why.code, 0) << why.text;
  EXPECT_THAT(why.text, AllOf(HasSubstr("cause   rank 1 (B on host "), HasSubstr(" computes slot "),
                              HasSubstr("rank 0 waits for rank 1"), HasSubstr("1 rank waits for it")))
      << read("r.json.flight/rank-0.flight") << read("r.json.flight/rank-1.flight");
  const auto json = nlohmann::json::parse(read("why.json"));
  EXPECT_EQ(json["causes"][0]["kind"], "computes");
  EXPECT_EQ(json["causes"][0]["chain"], (std::vector<int>{0, 1}));
}

TEST_F(StuckRun, AKernelThatBlocksInThreads) {
  const StuckOutcome run = run_shell(environment_ +
                                     "STUCK_AFTER=7 STUCK_HOW=block bin/nlbench run saved --transport threads "
                                     "--deadline-floor 0.5");
  expect_one_message(run, "its thread used 0.0 s of processor time");
  EXPECT_THAT(run.text, HasSubstr("nlbench explain-failure nlbench.flight"));
  const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure nlbench.flight");
  EXPECT_EQ(why.code, 0) << why.text;
  EXPECT_THAT(why.text, AllOf(HasSubstr("computes slot "), HasSubstr("cause   rank ")));
}

TEST_F(StuckRun, AKernelThatCrashesLeavesARecord) {
  const StuckOutcome run = run_shell(mpirun("STUCK_RANK=1 STUCK_AFTER=5 STUCK_HOW=crash") + "saved --heartbeat 5");
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.text, HasSubstr("error: lost rank 1 on host "));
  const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure nlbench.flight");
  EXPECT_EQ(why.code, 0) << why.text;
  EXPECT_THAT(why.text, AllOf(HasSubstr("ended   this rank crashed: SIGSEGV"), HasSubstr("rank 1 (B on host "),
                              HasSubstr(" computes slot ")));
}

TEST_F(StuckRun, MemoryThatIsGoneLeavesARecord) {
  const StuckOutcome bus = run_shell(mpirun("STUCK_RANK=1 STUCK_AFTER=5 STUCK_HOW=bus") + "saved --heartbeat 5");
  EXPECT_NE(bus.code, 0);
  EXPECT_THAT(bus.text, HasSubstr("error: memory that is shared by a file is gone (SIGBUS)"));
  const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure nlbench.flight");
  EXPECT_THAT(why.text, AllOf(HasSubstr("ended   memory that is shared by a file is gone (SIGBUS)"),
                              HasSubstr("rank 1 (B on host "), HasSubstr(" computes slot ")));
  const StuckOutcome memory = run_shell(
      environment_ + "STUCK_AFTER=7 STUCK_HOW=memory bin/nlbench run saved --transport threads --json r.json");
  expect_one_message(memory, "error: out of memory: the system refuses to give this process more");
  const StuckOutcome refused = run_shell("cd " + dir_ + " && bin/nlbench explain-failure r.json.flight");
  EXPECT_THAT(refused.text, HasSubstr("ended   the system refuses to give this process more memory"));
}

// UCX has handlers of its own for these signals.
TEST_F(StuckRun, CrashesLeaveRecordsOverUcxToo) {
  const std::string over_ucx =
      "OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any UCX_TLS=tcp,self STUCK_RANK=1 "
      "STUCK_AFTER=5 ";
  for (const auto& [how, ended] : {std::pair{"crash", "this rank crashed: SIGSEGV"},
                                   std::pair{"bus", "memory that is shared by a file is gone (SIGBUS)"}}) {
    const StuckOutcome run = run_shell(mpirun(over_ucx + "STUCK_HOW=" + how) + "saved --heartbeat 5");
    if (run.text.find("ucx cannot be selected") != std::string::npos) GTEST_SKIP() << "this Open MPI has no UCX";
    EXPECT_NE(run.code, 0);
    const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure nlbench.flight");
    EXPECT_THAT(why.text, AllOf(HasSubstr(std::string("ended   ") + ended), HasSubstr("rank 1 (B on host "),
                                HasSubstr(" computes slot ")))
        << run.text;
    fs::remove_all(dir_ + "/nlbench.flight");
  }
}

TEST_F(StuckRun, SigtermLeavesARecordWhereAPlaceIsNamed) {
  const std::string run =
      environment_ + "STUCK_HOW=0 timeout --preserve-status 1 bin/nlbench run saved --transport threads ";
  EXPECT_EQ(run_shell(run + "--duration 60s").code, 130);
  EXPECT_FALSE(fs::exists(dir_ + "/nlbench.flight"));
  EXPECT_EQ(run_shell(run + "--duration 60s --json r.json").code, 130);
  const StuckOutcome why = run_shell("cd " + dir_ + " && bin/nlbench explain-failure r.json.flight");
  EXPECT_EQ(why.code, 0) << why.text;
  EXPECT_THAT(why.text, AllOf(HasSubstr("rank 0 (A on host "), HasSubstr("rank 1 (B on host ")));
}

// The preloaded library never gives t.json its name.
TEST_F(StuckRun, ResultsThatAreWrittenForEver) {
  const std::string strike = "STUCK_HOW=0 LD_PRELOAD=" NLS_BIN_DIR "/../lib/libstrike.so STRIKE_BLOCK=t.json ",
                    run = "saved --repeats 1 --json r.json --trace t.json --prepare-limit 1 ";
  for (const std::string& command :
       {environment_ + strike + "bin/nlbench run " + run + "--transport threads", mpirun(strike) + run}) {
    const StuckOutcome outcome = run_shell(command);
    expect_one_message(outcome, "the results come to no end: one piece of them has taken 1");
    EXPECT_LT(outcome.seconds, 20);
    EXPECT_TRUE(fs::exists(dir_ + "/r.json")) << "written before";
    fs::remove(dir_ + "/r.json");
  }
}

// Slow kernels, eight of whom share each core with others: all they do is wait for a core.
TEST_F(StuckRun, SlowOnesOnABusyMachineAreNone) {
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  const std::string load = "for i in $(seq " + std::to_string(8 * cores) +
                           "); do timeout 60 sh -c 'while :; do :; done' & pids=\"$pids $!\"; done; ";
  const StuckOutcome run =
      run_shell(load + mpirun("STUCK_HOW=0.05") +
                "saved --repeats 1 --warmup 0 --deadline-floor 0.4 --heartbeat 60 --watchdog 60; code=$?; "
                "kill $pids; exit $code");
  EXPECT_EQ(run.code, 0) << run.text;
  EXPECT_FALSE(fs::exists(dir_ + "/nlbench.flight"));
}

TEST_F(StuckRun, APlannerThatDoesNothing) {
  std::ofstream(dir_ + "/plans") << "#!/bin/sh\nexec sleep 61.375\n";
  fs::permissions(dir_ + "/plans", fs::perms::owner_all);
  const StuckOutcome run = run_shell(mpirun("") + "s.yaml --nlsim ./plans --prepare-limit 1");
  expect_one_message(run, "./plans was ended: it did nothing for 1 s");
  EXPECT_LT(run.seconds, 20);
  EXPECT_NE(run_shell("pgrep -f '^sleep 61.375$'").code, 0) << "the planner is gone, too";
}

TEST_F(StuckRun, APlannerThatPlansForEver) {
  std::ofstream(dir_ + "/plans") << "#!/bin/sh\nwhile :; do :; done\n";
  fs::permissions(dir_ + "/plans", fs::perms::owner_all);
  const StuckOutcome run =
      run_shell(environment_ + "bin/nlbench run s.yaml --transport threads --nlsim ./plans --planning-limit 1");
  expect_one_message(run, "of processor time and does not end");
}

}  // namespace
}  // namespace nlsplit
