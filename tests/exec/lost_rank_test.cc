// A rank that dies or is stopped while nlbench runs over MPI, in every phase: all end in time, with one message and
// exit code 3. And a long computation is no such thing. Links that are cut: tests/emulate/cut_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "exec/programs.h"
#include "program/saved.h"
#include "testing/native_program.h"
#include "testing/paths.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double nlbench_limit_s = 3;  // shorter ones are no test on a busy machine
constexpr auto patience = 60s;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// One `mpirun -np 2 nlbench run` in a folder of its own.
class MpiRun {
 public:
  MpiRun() {
    std::string name = "/tmp/nlbench-lost-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~MpiRun() { fs::remove_all(dir_); }
  MpiRun(const MpiRun&) = delete;
  MpiRun& operator=(const MpiRun&) = delete;

  // A Program in `saved` whose computations take so long: each, and layer 1's of each micro-batch on device B.
  void save(double each_s, double layer_1_s) const {
    SavedProgram saved{program_of("interleaved"), program_of("interleaved_unsplit"), false, {}};
    WeightStore store;
    for (Program* program : {&saved.program, &saved.unsplit}) {
      for (DeviceProgram& device : program->devices) {
        for (Buffer& buffer : device.buffers) {
          if (buffer.has_content) buffer.content = store.add_random(buffer.type, buffer.content.value, 1.0f);
        }
      }
    }
    saved.clocks.assign(2, std::vector<double>(saved.program.descs.size(), each_s));
    const Instr& layer_1 = saved.program.devices[1].segments[0].instrs[1];
    ASSERT_EQ(layer_1.opcode, Opcode::compute);
    saved.clocks[1][static_cast<size_t>(layer_1.desc)] = layer_1_s;
    const Status status = save_program(dir_ + "/saved", saved, store);
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }
  // A Program of which B joins a collective of MPI's own after `joins_s`, and A at once.
  void save_native(double joins_s) const {
    const Program program = value_of(parse_program(native_all_reduce, "native_all_reduce"));
    SavedProgram saved{program, program, false, {}};
    for (const DeviceProgram& device : saved.program.devices) {
      std::vector<double>& clock = saved.clocks.emplace_back(saved.program.descs.size(), 0);
      const Instr& first = device.segments[0].instrs[0];
      ASSERT_EQ(first.opcode, Opcode::compute);
      if (device.name == "B") clock[static_cast<size_t>(first.desc)] = joins_s;
    }
    const Status status = save_program(dir_ + "/saved", saved, {});
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }
  // In place of nlsim: plans for ever, and says when it begins.
  void save_slow_planner() const {
    // Not by a stream: the processes that other threads start would keep it open, and Linux executes no such file.
    ASSERT_TRUE(write_file(dir_ + "/s.yaml", "nobody reads it").ok());
    ASSERT_TRUE(write_file(dir_ + "/plans_slowly", "#!/bin/sh\ntouch planning\nexec sleep 20\n").ok());
    fs::permissions(dir_ + "/plans_slowly", fs::perms::owner_all);
  }

  // `slow_calls`: see exec/slow_calls/slow_calls.cc; `environment`: see faults/strike.cc.
  void start(const std::string& arguments, const std::string& slow_calls = "", const std::string& environment = "") {
    const std::string preload =
        slow_calls.empty()
            ? ""
            : "-x LD_PRELOAD=" NLS_BIN_DIR "/../lib/libslow_calls.so -x SLOW_CALLS='" + slow_calls + "' ";
    const std::string command = "cd " + dir_ + " && " + environment + "exec mpirun --oversubscribe " +
                                (::geteuid() == 0 ? "--allow-run-as-root " : "") +
                                "--mca btl_vader_single_copy_mechanism none " + preload +
                                "-np 2 " NLS_BIN_DIR "/nlbench run " + arguments + " > out 2> err";
    child_ = ::fork();
    if (child_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }

  // Its process, or 0. In /proc/PID/environ is how Open MPI, or MPICH, tells a process its rank.
  pid_t find_rank(int rank) const {
    const std::string of_open_mpi = fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0',
                      of_mpich = fmt::format("PMI_RANK={}", rank) + '\0';
    std::error_code failure;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc", failure)) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (fs::read_symlink(entry.path() / "cwd", failure) != dir_ || failure) continue;
      if (fs::read_symlink(entry.path() / "exe", failure).filename() != "nlbench") continue;
      const std::string environment = '\0' + text_of(entry.path() / "environ");
      for (const std::string& wanted : {of_open_mpi, of_mpich}) {
        if (environment.find('\0' + wanted) != std::string::npos) return std::stoi(name);
      }
    }
    return 0;
  }

  // Sends a signal to a rank once it is `ready`; answers how long the other one then went on.
  double strike(int rank, int signal, const std::function<bool()>& ready) {
    const auto end = Clock::now() + patience;
    while ((victim_ = find_rank(rank)) == 0 || !ready()) {
      if (Clock::now() > end) {
        ADD_FAILURE() << "rank " << rank << " did not come so far: " << err();
        break;
      }
      std::this_thread::sleep_for(5ms);
    }
    const auto begin = Clock::now();
    if (victim_ > 0) ::kill(victim_, signal);
    while (find_rank(1 - rank) != 0 && Clock::now() < begin + patience) std::this_thread::sleep_for(10ms);
    return seconds_since(begin);
  }

  // The thread that computes sleeps at most twice for each of the eight computations of an execution, and twice
  // between executions: after four of them one repeat, not counting the first, is finished.
  bool repeats() const {
    constexpr int sleeps_of_four = 4 * (2 * 8 + 2);
    std::error_code failure;
    for (const fs::directory_entry& task :
         fs::directory_iterator("/proc/" + std::to_string(find_rank(0)) + "/task", failure)) {
      if (text_of(task.path() / "comm") != "nls-compute\n") continue;
      const std::string status = text_of(task.path() / "status"), line = "\nvoluntary_ctxt_switches:";
      const size_t at = status.find(line);
      if (at != std::string::npos && std::stoi(status.substr(at + line.size())) >= sleeps_of_four) return true;
    }
    return false;
  }
  bool computes(int rank) const {
    std::error_code failure;
    for (const fs::directory_entry& task :
         fs::directory_iterator("/proc/" + std::to_string(find_rank(rank)) + "/task", failure)) {
      if (text_of(task.path() / "comm") == "nls-compute\n") return true;
    }
    return false;
  }
  bool exists(const char* name) const { return fs::exists(dir_ + "/" + name); }
  std::string read(const char* name) const { return text_of(dir_ + "/" + name); }

  int code() const {
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string err() const { return read("err"); }
  bool is_gone(int rank) const {
    const auto end = Clock::now() + patience;
    while (find_rank(rank) != 0 && Clock::now() < end) std::this_thread::sleep_for(50ms);
    return find_rank(rank) == 0;
  }

  void expect_one_message(const std::string& what) const {
    const std::string text = err();
    const size_t first = text.find("error: ");
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("error: ", first + 1), std::string::npos) << text;
    EXPECT_THAT(text, AllOf(HasSubstr(what), Not(HasSubstr("interrupted"))));
  }

 private:
  std::string dir_;
  pid_t child_ = 0, victim_ = 0;
};

// Each mostly waits: all at once take as long as the longest.
void at_once(const std::vector<std::function<void()>>& cases) {
  std::vector<std::thread> threads;
  for (const auto& one : cases) threads.emplace_back(one);
  for (std::thread& thread : threads) thread.join();
}

const std::string limits = " --heartbeat 3 --start-timeout 3 --json r.json ";

class LostRank : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "limits of seconds are no test of programs that a sanitizer makes many times slower";
#endif
  }
};

void in_set_up(int signal, const std::string& how) {
  MpiRun run;
  run.save_slow_planner();
  run.start("s.yaml --nlsim ./plans_slowly" + limits);
  EXPECT_LT(run.strike(1, signal, [&] { return run.exists("planning"); }), nlbench_limit_s);
  EXPECT_EQ(run.code(), signal == SIGKILL ? 128 + SIGKILL : 3);
  run.expect_one_message("error: lost rank 1 on host ");
  EXPECT_THAT(run.err(), AllOf(HasSubstr(how), HasSubstr("worked on the planning")));
}

void in_steady_state(int rank, int signal, const std::string& how) {
  MpiRun run;
  run.save(0.02, 0.02);
  run.start("saved --duration 60s" + limits);
  EXPECT_LT(run.strike(rank, signal, [&] { return run.repeats(); }), nlbench_limit_s);
  EXPECT_EQ(run.code(), signal == SIGKILL ? 128 + SIGKILL : 3);  // mpirun puts a signal above all codes
  run.expect_one_message("error: lost rank " + std::to_string(rank) + " on host ");
  EXPECT_THAT(run.err(), HasSubstr(how));
  if (rank == 1)  // rank 0 may just as well stand between two repeats
    EXPECT_THAT(run.err(), AnyOf(HasSubstr("waited in device A slot "), HasSubstr(" of repeat ")));
  else
    EXPECT_THAT(run.err(), HasSubstr("rank 1 on host "));
  EXPECT_TRUE(run.is_gone(rank)) << "a stopped one ends, too";
  if (rank == 0) return;  // it alone knows
  EXPECT_THAT(run.read("out"), HasSubstr("incomplete  the run was ended after these repeats"));
  EXPECT_THAT(run.read("r.json"), AllOf(HasSubstr("\"incomplete\": \"lost rank 1"), HasSubstr("makespans_s")));
}

// Rank 0 writes a file, which does not end, when rank 1, which only waits for the end, is lost.
void in_tear_down(int signal, const std::string& how) {
  MpiRun run;
  run.save(0.04, 0.04);
  run.start("saved --repeats 1 --trace t.json" + limits, "",
            "LD_PRELOAD=" NLS_BIN_DIR "/../lib/libstrike.so STRIKE_BLOCK=t.json ");
  EXPECT_LT(run.strike(1, signal, [&] { return run.exists("r.json"); }), nlbench_limit_s);
  EXPECT_EQ(run.code(), signal == SIGKILL ? 128 + SIGKILL : 3);
  run.expect_one_message("error: lost rank 1 on host ");
  EXPECT_THAT(run.err(), AllOf(HasSubstr(how), HasSubstr("worked on the end of the run")));
  EXPECT_THAT(run.read("r.json"), Not(HasSubstr("incomplete")));
}

// MPI itself waits for it then.
void in_a_native_collective(int signal, const std::string& how) {
  MpiRun run;
  run.save_native(40);
  run.start("saved --repeats 1 --warmup 0" + limits);
  const auto in_it = [&] {
    if (!run.computes(0) || !run.computes(1)) return false;
    std::this_thread::sleep_for(1s);  // B computes far longer
    return true;
  };
  EXPECT_LT(run.strike(1, signal, in_it), nlbench_limit_s);
  EXPECT_EQ(run.code(), signal == SIGKILL ? 128 + SIGKILL : 3);
  run.expect_one_message("error: lost rank 1 on host ");
  EXPECT_THAT(run.err(), AllOf(HasSubstr(how), HasSubstr("`collective all-reduce tree of A, B elements 12 native")));
}

// Nobody can say which one: ranks do not know each other yet.
void while_mpi_starts() {
  MpiRun run;
  run.save(0, 0);
  run.start("saved" + limits);
  EXPECT_LT(run.strike(1, SIGSTOP, [] { return true; }), nlbench_limit_s + 1);  // counted from the start of the other
  EXPECT_EQ(run.code(), 3);
  run.expect_one_message("error: rank 0 on host ");
}

TEST_F(LostRank, KilledInAnyPhase) {
  const std::string how = "its connection broke: it died or was cut off";
  at_once({[&] { in_set_up(SIGKILL, how); }, [&] { in_steady_state(1, SIGKILL, how); },
           [&] { in_tear_down(SIGKILL, how); }, [&] { in_a_native_collective(SIGKILL, how); }});
}

TEST_F(LostRank, StoppedInAnyPhase) {
  const std::string how = "it was silent for ";
  at_once({[&] { in_set_up(SIGSTOP, how); }, [&] { in_steady_state(1, SIGSTOP, how); },
           [&] { in_tear_down(SIGSTOP, how); }, [&] { in_a_native_collective(SIGSTOP, how); },
           [&] { in_steady_state(0, SIGSTOP, how); }, while_mpi_starts});
}

// One rank alone does not come back from it, though its heartbeat goes on.
void in_finalize() {
  MpiRun run;
  run.save(0, 0);
  run.start("saved --repeats 1 --heartbeat 2", "1 MPI_Finalize 40");
  EXPECT_EQ(run.code(), 3);
  run.expect_one_message("error: rank 0 on host ");
  EXPECT_THAT(run.err(), AllOf(HasSubstr("waited 2 s in MPI_Finalize"), HasSubstr("\n  rank 1 on host ")));
  EXPECT_THAT(run.read("out"), HasSubstr("samples/s")) << "what was measured is not lost";
}

// Open MPI resolves names in its start. That is slow, and no lost rank.
void slow_name() {
  MpiRun run;
  run.save(0, 0);
  run.start("saved --repeats 1 --heartbeat 3", "0 getaddrinfo 7,1 getaddrinfo 7");
  EXPECT_EQ(run.code(), 0) << run.err();
  const std::string text = run.err();
  const size_t first = text.find("nlbench: rank 0 on host ");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("nlbench: rank ", first + 1), std::string::npos) << text;
  EXPECT_THAT(text, AllOf(HasSubstr(" still waits in the start; the name of this host, '"),
                          HasSubstr("', is not resolved after 5.")));
}

TEST_F(LostRank, CallsOfMpiThatTakeLong) { at_once({in_finalize, slow_name}); }

// Each computation takes longer than the watchdog waits and a heartbeat may be silent; the other rank only waits.
TEST_F(LostRank, ALongComputationIsNone) {
  MpiRun run;
  run.save(0, 1.6);
  run.start("saved --repeats 1 --warmup 0 --watchdog 1 --heartbeat 2");
  EXPECT_EQ(run.code(), 0) << run.err();
}

}  // namespace
}  // namespace nlsplit
