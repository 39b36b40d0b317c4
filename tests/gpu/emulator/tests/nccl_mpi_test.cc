// `nlbench run --gpu-messages nccl` over MPI, a process a rank, each with an emulated GPU and the stand-in for NCCL.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "exec/fake_nccl/fake_nccl.h"
#include "exec/gpu_programs.h"
#include "program/saved.h"

namespace nlsplit {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class NcclOverMpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(NLS_BIN_DIR "/nlbench")) GTEST_SKIP() << "built without nlbench";
    std::string name = "/tmp/nlbench-nccl-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    SavedProgram saved{on_gpus("interleaved"), on_gpus("interleaved_unsplit"), false, {}};
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
  }
  void TearDown() override {
    if (!dir_.empty()) fs::remove_all(dir_);
  }

  // Both ranks are processes of their own: their folder is in the test's.
  std::string command(const std::string& options) const {
    return fmt::format(
        "cd {0} && {1}={0} exec mpirun {2} --oversubscribe --mca btl_vader_single_copy_mechanism none -x {1} -np 2 "
        "{3}/nlbench run saved --gpu-backend {3}/../lib/libbackend_cuda_emulated.so {4} > out 2>&1",
        dir_, fake_nccl_folder, ::geteuid() == 0 ? "--allow-run-as-root" : "", NLS_BIN_DIR, options);
  }
  static std::string over_nccl() { return "--gpu-messages nccl --nccl " NLS_BIN_DIR "/../lib/libfake_nccl.so "; }
  int run(const std::string& options) const {
    const int status = std::system(command(options).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  std::string out() const { return value_of(read_file(dir_ + "/out")); }
  size_t folders_left() const {
    size_t left = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_))
      left += entry.path().filename().string().starts_with("nlsplit-fake-nccl-") ? 1 : 0;
    return left;
  }

  std::string dir_;
};

TEST_F(NcclOverMpi, SplitEqualsUnsplit) {
  EXPECT_EQ(run(over_nccl() + "--check --repeats 2"), 0) << out();
  EXPECT_THAT(out(), HasSubstr("equal to the unsplit run, bit for bit (16 values)"));
  EXPECT_EQ(folders_left(), 0u);
}

TEST_F(NcclOverMpi, BadUsageIsExitCodeTwo) {
  EXPECT_EQ(run("--nccl libnccl.so.2"), 2);
  EXPECT_THAT(out(), HasSubstr("--nccl names the library of --gpu-messages nccl"));
  EXPECT_EQ(run("--gpu-messages nccl --nccl libno_nccl.so"), 2);
  EXPECT_THAT(out(), AllOf(HasSubstr("device A: cannot load NCCL"), HasSubstr("libno_nccl.so")));
}

pid_t process_of(const fs::path& folder, const std::string& rank) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (fs::read_symlink(entry.path() / "cwd", failure) != folder || failure) continue;
    if (fs::read_symlink(entry.path() / "exe", failure).filename() != "nlbench") continue;
    const auto environment = read_file(entry.path() / "environ");
    if (environment.ok() && environment->find(rank) != std::string::npos) return std::stoi(name);
  }
  return 0;
}

TEST_F(NcclOverMpi, AKilledRankEndsTheRun) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command(over_nccl() + "--duration 60s --heartbeat 3").c_str(), nullptr);
    ::_exit(127);
  }
  const auto patience = std::chrono::steady_clock::now() + 60s;
  const auto in_time = [&] { return std::chrono::steady_clock::now() < patience; };
  // Its folder is there once NCCL has begun; some time later repeats are under way.
  while (folders_left() == 0 && in_time()) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(500ms);
  const pid_t victim = process_of(dir_, std::string("OMPI_COMM_WORLD_RANK=1") + '\0');
  ASSERT_GT(victim, 0) << out();
  ::kill(victim, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(in_time());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL) << out();  // mpirun puts a signal above all codes
  EXPECT_THAT(out(), HasSubstr("error: lost rank 1 on host "));
}

}  // namespace
}  // namespace nlsplit
