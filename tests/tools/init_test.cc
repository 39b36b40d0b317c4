// `nlsim init` as a user meets it. How near its links come to the truth: tests/accuracy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What this program's own environment says of Slurm, or of how to start ranks, is none of the tests'.
Outcome init(const std::string& arguments, const std::string& environment = "") {
  return run_command(
      fmt::format("env -u SLURM_JOB_NODELIST -u SLURM_JOB_CPUS_PER_NODE -u NLBENCH_LAUNCHER {} {}/nlsim init {}",
                  environment, NLS_BIN_DIR, arguments));
}

void expect_refused(const Outcome& outcome, const std::string& what) {
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(what));
}

TEST(Init, OfThisMachineAloneRanksAtOnce) {
  const Scratch scratch;
  const std::string file = scratch / "mine.yaml";
  const Outcome made = init("-o " + file);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("1 host, 0 paths measured, 4 questions (TODO)"), HasSubstr("nlsim rank " + file)));
  const Outcome ranked = nlsim("rank " + file);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("mobilenet_v2, batch 32 on 1 device"));
  // What stands there already stays, unless it is told.
  scratch.write("mine.yaml", "my own\n");
  expect_refused(init("-o " + file), "mine.yaml is there already: --force writes over it");
  EXPECT_EQ(value_of(read_file(file)), "my own\n");
  EXPECT_EQ(init("--force --model zoo:mlp -o " + file).code, 0);
  EXPECT_THAT(value_of(read_file(file)), AllOf(HasSubstr("model: zoo:mlp\n"), Not(HasSubstr("which network"))));
}

// Both names are this machine: two ranks, and the messages between them.
TEST(Init, OfHostsThatMpirunReaches) {
  const Scratch scratch;
  const std::string hosts = scratch.write("hosts", "localhost slots=1\n127.0.0.1 slots=1   # itself once more\n");
  const std::string mpirun =
      fmt::format(" --launcher 'mpirun --oversubscribe {}'", ::geteuid() == 0 ? "--allow-run-as-root" : "");
  const Outcome made = init("--hostfile " + hosts + mpirun + " --model zoo:mlp -o " + scratch / "two.yaml");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 hosts, 1 path measured"));
  const std::string twice = "localhost and 127.0.0.1 are one machine: its cores and memory are counted twice";
  EXPECT_THAT(made.err, HasSubstr("warning: " + twice));
  const std::string text = value_of(read_file(scratch / "two.yaml"));
  EXPECT_THAT(
      text, AllOf(HasSubstr("between: [localhost, 127.0.0.1]"), HasSubstr("messages over mpi"), HasSubstr("cores: 1,"),
                  HasSubstr("--hostfile " + hosts), HasSubstr("# TODO " + twice), HasSubstr("machine: localhost")));
  const Outcome ranked = nlsim("rank " + scratch / "two.yaml");
  EXPECT_EQ(ranked.code, 0) << ranked.err << text;
}

TEST(Init, BadListsOfHostsAreRefusedBeforeAnythingStarts) {
  const Scratch scratch;
  const std::string output = " -o " + scratch / "s.yaml", nowhere = " --nlbench /nonexistent --launcher /nonexistent";
  expect_refused(init("--hostfile " + scratch.write("hosts", "a\n\nb slot=2\n") + output + nowhere),
                 "hosts:3: 'slot=2' is neither slots=N nor max_slots=N\n  | b slot=2");
  expect_refused(init("--hostfile " + scratch / "missing" + output + nowhere), "missing");
  expect_refused(init("--hosts a,a" + output + nowhere), "--hosts: 'a' twice");
  expect_refused(init("--workers b" + output + nowhere), "--workers: 'b' is no HOST:PORT");
  expect_refused(init(output + nowhere, "SLURM_JOB_NODELIST='n[1-'"), "SLURM_JOB_NODELIST 'n[1-': no ']'");
  expect_refused(init(output + nowhere, "SLURM_JOB_NODELIST='n[1-3]' SLURM_JOB_CPUS_PER_NODE='4(x2)'"),
                 "is of 2 nodes, and SLURM_JOB_NODELIST names 3");
  expect_refused(init("--hosts a -o " + scratch / "no/folder/s.yaml" + nowhere), "there is no folder");
  expect_refused(init("--hosts a --force -o " + (scratch / ".") + nowhere), "it is a folder");
  for (const std::string option : {"--hosts", "--hostfile", "--workers", "--survey", "--model"})
    expect_refused(init(option + " ''" + output + nowhere), option + ": is empty");
  EXPECT_EQ(init("--hosts a --hostfile b").code, 2);
  EXPECT_FALSE(std::filesystem::exists(scratch / "s.yaml"));
}

// mpirun is named once in the allocation's words, and its failure is ours.
TEST(Init, InASlurmAllocationTakesItsNodes) {
  const Scratch scratch;
  const std::string mpirun = scratch.write("mpirun", "#!/bin/sh\necho \"$@\" >&2\nexit 3\n");
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  const Outcome outcome = init("--launcher " + mpirun + " -o " + scratch / "s.yaml",
                               "SLURM_JOB_NODELIST='n[08-09],gpu1' SLURM_JOB_CPUS_PER_NODE='4(x2),16'");
  EXPECT_EQ(outcome.code, 3);
  const size_t names = outcome.err.find("--names");
  EXPECT_EQ(outcome.err.find("--names", names + 1), std::string::npos) << "rank 0 alone needs them";
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--bind-to none -np 1 --host n08 "), HasSubstr(": -np 1 --host gpu1 "),
                                 HasSubstr("--names n08,n09,gpu1 --cores 4,4,16"), HasSubstr("nothing is written")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "s.yaml"));
}

TEST(Init, WritesASurveyThatIsThereAlready) {
  const Scratch scratch;
  const Outcome surveyed = nlbench("survey --transport threads --names desk --cores 1 -o " + scratch / "survey.json");
  ASSERT_EQ(surveyed.code, 0) << surveyed.err;
  const Outcome made = init("--survey " + scratch / "survey.json");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("desk: {host: desk,"), HasSubstr("cores: 1,")));
  EXPECT_EQ(init("--survey " + scratch / "survey.json").out, made.out);
  // Two ranks with one name: what helps depends on whether they share a machine.
  std::string two = value_of(read_file(scratch / "survey.json"));
  const size_t from = two.find('{', two.find("\"machines\"")), to = two.find("\n ]", from);
  two.insert(from, two.substr(from, to - from) + ",");
  expect_refused(init("--survey " + scratch.write("two.json", two)), "nlbench survey --names tells them apart");
  two.insert(1, "\"one_machine\": [[0, 1]],");
  expect_refused(init("--survey " + scratch.write("two.json", two)),
                 "ranks 0 and 1 of the survey are on one machine, both called 'desk': start one rank a host");
  expect_refused(init("--survey " + scratch.write("bad.json", "{\"format\": 1}")), "bad.json");
  expect_refused(nlbench("survey --transport threads --names a,b -o " + scratch / "two.json"),
                 "2 hosts are named, and 1 ranks are there");
}

// Before anything is measured: what starts ranks is not there.
TEST(Init, ItsModelMustBeThere) {
  const Scratch scratch;
  const Outcome outcome = init("--hosts a --launcher /nonexistent --model zoo:nothing -o " + scratch / "s.yaml");
  expect_refused(outcome, "--model zoo:nothing: the zoo has no model");
  EXPECT_THAT(outcome.err, Not(HasSubstr("s.yaml"))) << "a file that is not there";
  expect_refused(init("--hosts a --launcher /nonexistent --model 'a\nb' -o " + scratch / "s.yaml"),
                 "control characters");
  EXPECT_FALSE(std::filesystem::exists(scratch / "s.yaml"));
}

}  // namespace
}  // namespace nlsplit
