// What starts ranks, and who says where they belong: `nlsim hostfile`, --launcher. With a real Slurm:
// scripts/check_slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two devices on host b, which the plan does not use one after the other.
std::string two_on_b() {
  std::string text = with(small_scenario(), "  C: {host: c,", "  B2: {host: b,");
  text = with(text, "between: [b, c]", "between: [b, b]");
  text = with(text, "source: a\nsink: c", "source: b\nsink: b");
  return with(text, "[..relu1@A, ..relu2@B, rest@C]", "[..relu1@B, ..relu2@A, rest@B2]");
}

TEST(Hostfile, HasALineForEachRank) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", two_on_b());
  const Outcome hosts = nlsim("hostfile " + scenario + " --plan mine");
  EXPECT_EQ(hosts.code, 0) << hosts.err;
  EXPECT_EQ(hosts.out, "b\na\nb\n");
  const std::string file = scratch / "hosts", saved = scratch / "saved";
  ASSERT_EQ(nlsim("lower " + scenario + " --plan mine --save " + saved).code, 0);
  EXPECT_EQ(nlsim("hostfile " + saved + " -o " + file).out, "");
  EXPECT_EQ(value_of(read_file(file)), hosts.out);
  EXPECT_EQ(nlbench("run --hosts " + saved).out, hosts.out) << "which nlemulate asks";
}

// The data are on the first device's host, wherever the scenario's source and sink are.
TEST(Hostfile, OfATrainingHasNoRankForTheSink) {
  const Scratch scratch;
  const std::string text = with(small_scenario(), "mode: inference", "mode: training, optimizer: sgd");
  const std::string scenario = scratch.write(
      "s.yaml",
      with(with(text, "mine: [..relu1@A, ..relu2@B, rest@C]", "two: [..relu1@A, rest@B]"), "[streaming]", "[1f1b]"));
  EXPECT_EQ(nlsim("hostfile " + scenario + " --plan two").out, "a\nb\nc\n");
  const Outcome train = nlsim("hostfile " + scenario + " --plan two --train");
  EXPECT_EQ(train.out, "a\nb\n") << train.err;
  EXPECT_EQ(nlsim("hostfile " + scenario + " --plan two --session").out, "a\nb\nc\n");
  const std::string saved = scratch / "saved";
  ASSERT_EQ(nlsim("lower " + scenario + " --plan two --train --save " + saved).code, 0);
  EXPECT_EQ(nlsim("hostfile " + saved).out, train.out);
}

TEST(Hostfile, RefusesWhatHasNoRanks) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", two_on_b()), saved = scratch / "saved";
  ASSERT_EQ(nlsim("lower " + scenario + " --plan mine --save " + saved).code, 0);
  const auto refused = [](const std::string& words, const std::string& what) {
    const Outcome outcome = nlsim("hostfile " + words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(what));
    EXPECT_EQ(outcome.out, "");
  };
  refused(saved + " --plan mine", "holds one plan already: --plan, --plan-file, --session and --train");
  refused(scenario + " --plan nobody", "nobody");
  refused(scenario + " --train", "mode: training");
  refused(scratch / "nowhere", "nowhere");
}

// Stands in for Slurm's: the words it is told are kept, and mpirun starts the ranks in the order of its components.
std::string fake_srun(const Scratch& scratch) {
  const std::string srun =
      scratch.write("srun", fmt::format(R"(#!/bin/bash
echo "$@" >> {}/words
words=(mpirun {} --oversubscribe) options=yes
for word in "$@"; do
  case $options$word in
    yes--ntasks=*) words+=(-np "${{word#--ntasks=}}") ;;
    yes--*) ;;
    *) options= ; words+=("$word"); [ "$word" != : ] || options=yes ;;
  esac
done
exec "${{words[@]}}"
)",
                                        scratch / ".", ::geteuid() == 0 ? "--allow-run-as-root" : ""));
  std::filesystem::permissions(srun, std::filesystem::perms::owner_all);
  return srun;
}

Outcome validate(const Scratch& scratch, const std::string& environment, const std::string& words) {
  return run_command(
      fmt::format("env -u NLBENCH_LAUNCHER -u NLBENCH_ON_HOSTS -u SLURM_JOB_NODELIST -u SLURM_MPI_TYPE "
                  "ASAN_OPTIONS=detect_leaks=0 {} {}/nlbench validate {} -o {} --top 2 --also 2 --rounds 1 {}",
                  environment, NLS_BIN_DIR, scratch.write("s.yaml", two_on_b()), scratch / "v", words));
}

// srun takes each host once, so ranks of a host come together.
TEST(Launcher, SrunGetsTheHostsOfTheAllocation) {
  const Scratch scratch;
  const Outcome outcome =
      validate(scratch, "SLURM_JOB_NODELIST=a,b SLURM_JOB_ID=1", "--launcher " + fake_srun(scratch));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string words = value_of(read_file(scratch / "words"));
  EXPECT_THAT(words, AllOf(HasSubstr("--mpi="), HasSubstr("--nodelist=b --nodes=1 --ntasks=2 "), HasSubstr(" : "),
                           HasSubstr("--nodelist=a --nodes=1 --ntasks=1 ")));
  EXPECT_THAT(value_of(read_file(scratch / "v/results.jsonl")), Not(HasSubstr("\"error\"")));
}

TEST(Launcher, WithoutTheHostsItPlacesRanksItself) {
  const Scratch scratch;
  const Outcome outcome =
      validate(scratch, "SLURM_JOB_NODELIST=b,x SLURM_JOB_ID=1", "--launcher " + fake_srun(scratch));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(value_of(read_file(scratch / "words")), AllOf(HasSubstr("--ntasks=3 "), Not(HasSubstr("--nodelist"))));
}

TEST(Launcher, ErrorsNameWhoSaidIt) {
  const Scratch scratch;
  const Outcome empty = validate(scratch, "", "--launcher ' '");
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("--launcher is empty"));
  const Outcome nodes = validate(scratch, "SLURM_JOB_NODELIST='n[1-'", "");
  EXPECT_EQ(nodes.code, 2);
  EXPECT_THAT(nodes.err, HasSubstr("SLURM_JOB_NODELIST 'n[1-': no ']'"));
}

}  // namespace
}  // namespace nlsplit
