#include "base/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The environment as if outside of Slurm, or in an allocation; put back in the end.
class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_MPI_TYPE", "PATH"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value != nullptr ? value : "");
      if (std::string(name) != "PATH") ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  }

 private:
  std::vector<std::pair<const char*, std::string>> before_;
};

TEST_F(LauncherTest, MpirunTakesHostsOneByOne) {
  const Launcher launcher = value_of(parse_launcher("mpirun --oversubscribe", "--launcher"));
  EXPECT_FALSE(launcher.is_srun);
  EXPECT_THAT(command_of(launcher, {{"b", 2, {"p", "x"}}, {"a", 1, {"p"}}}),
              ElementsAre("mpirun", "--oversubscribe", "-np", "2", "--host", "b", "p", "x", ":", "-np", "1", "--host",
                          "a", "p"));
  EXPECT_THAT(command_of(launcher, {{"", 3, {"p"}}}), ElementsAre("mpirun", "--oversubscribe", "-np", "3", "p"));
}

TEST_F(LauncherTest, SrunTakesHostsAsComponentsOfAStep) {
  const Launcher launcher = value_of(parse_launcher(" /opt/slurm/bin/srun  -v", "--launcher"));
  EXPECT_TRUE(launcher.is_srun);
  EXPECT_THAT(command_of(launcher, {{"b", 2, {"p", "x"}}, {"a", 1, {"p"}}}),
              ElementsAre("/opt/slurm/bin/srun", "-v", "--mpi=pmix", "--overlap", "--overcommit", "--cpu-bind=none",
                          "--nodelist=b", "--nodes=1", "--ntasks=2", "p", "x", ":", "--nodelist=a", "--nodes=1",
                          "--ntasks=1", "p"));
}

TEST_F(LauncherTest, ThePmiThatSomebodyChoseStays) {
  const auto words = [](const char* text) {
    return command_of(value_of(parse_launcher(text, "--launcher")), {{"", 1, {"p"}}});
  };
  EXPECT_THAT(words("srun --mpi=pmix_v4"),
              ElementsAre("srun", "--mpi=pmix_v4", "--overlap", "--overcommit", "--cpu-bind=none", "--ntasks=1", "p"));
  ::setenv("SLURM_MPI_TYPE", "pmix_v3", 1);
  EXPECT_THAT(words("srun"), ElementsAre("srun", "--overlap", "--overcommit", "--cpu-bind=none", "--ntasks=1", "p"));
}

TEST_F(LauncherTest, NoWordIsNoLauncher) {
  const auto launcher = parse_launcher("  ", "NLBENCH_LAUNCHER");
  ASSERT_FALSE(launcher.ok());
  EXPECT_THAT(launcher.error().to_string(), HasSubstr("NLBENCH_LAUNCHER is empty"));
}

TEST_F(LauncherTest, SrunStandsInOnlyInAnAllocationWithoutMpirun) {
  const std::string mpirun = usual_launcher();
  EXPECT_THAT(mpirun, HasSubstr("mpi"));
  ::setenv("SLURM_JOB_ID", "1", 1);
  EXPECT_EQ(usual_launcher(), mpirun);
  ::setenv("PATH", "/nonexistent", 1);
  EXPECT_EQ(usual_launcher(), mpirun) << "no srun either: the error then names mpirun";
}

TEST_F(LauncherTest, AnAllocationHasNodes) {
  EXPECT_TRUE(value_of(allocated_nodes()).empty());
  ::setenv("SLURM_JOB_NODELIST", "n[1-2],gpu", 1);
  EXPECT_THAT(value_of(allocated_nodes()), ElementsAre("n1", "n2", "gpu"));
  ::setenv("SLURM_JOB_NODELIST", "n[1-", 1);
  EXPECT_FALSE(allocated_nodes().ok());
}

}  // namespace
}  // namespace nlsplit
