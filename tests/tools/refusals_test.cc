// What all commands have in common when they refuse: exit code 2, a place and a reason on stderr, nothing printed,
// nothing written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Refusals : public ::testing::Test {
 protected:
  void expect_refused(const Outcome& outcome, const ::testing::Matcher<const std::string&>& message) const {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, message);
  }
  // By every command that reads a scenario.
  void expect_all_refuse(const std::string& text, const ::testing::Matcher<const std::string&>& message) const {
    const Scratch out;
    const std::string file = scratch_.write("s.yaml", text);
    expect_refused(nlsim(fmt::format("rank {} --json {} --csv {} --save-plans {}", file, out / "r.json", out / "r.csv",
                                     out / "plans")),
                   message);
    expect_refused(nlsim(fmt::format("lower {} --save {}", file, out / "saved")), message);
    expect_refused(nlsim(fmt::format("simulate {} --trace {} --json {}", file, out / "t.json", out / "s.json")),
                   message);
    expect_refused(nlbench(fmt::format("run {} --transport threads --output {} --json {} --trace {}", file,
                                       out / "y.npy", out / "b.json", out / "t2.json")),
                   message);
    EXPECT_TRUE(std::filesystem::is_empty(out / "")) << "something was written";
  }
  std::string at(const std::string& place) const { return "error: " + (scratch_ / "s.yaml") + ":" + place + ": "; }

  Scratch scratch_;
};

TEST_F(Refusals, SayWhereAndShowTheText) {
  expect_all_refuse(with(small_scenario(), "batch: 8", "batch: 8GB"),
                    AllOf(StartsWith(at("2:36")), HasSubstr("\n  | workload: ")));
  expect_all_refuse(with(small_scenario(), "sink: c", "sink: c\nfoo: 1"),
                    AllOf(StartsWith(at("12:1")), HasSubstr("\n  | foo: 1")));
  expect_all_refuse(with(small_scenario(), "sink: c", "sink: cc"),
                    AllOf(StartsWith(at("11:7")), HasSubstr("did you mean 'c'"), HasSubstr("\n  | sink: cc")));
  expect_all_refuse(with(small_scenario(), "latency: 10us}", "latency: 10us"),
                    StartsWith("error: " + (scratch_ / "s.yaml") + ":"));
}

TEST_F(Refusals, PrecisionsThereAreNone) {
  const auto words = HasSubstr("unknown precision \"half\"; it is float32, float16, bfloat16");
  expect_refused(nlsim("show zoo:simple_cnn --precision half"), words);
  expect_refused(nlsim("show zoo:simple_cnn --memory --precision half"), words);
  expect_refused(nlsim(fmt::format("export zoo:simple_cnn --precision half -o {}", scratch_ / "m.onnx")), words);
  expect_refused(nlsim(fmt::format("lower zoo:simple_cnn --precision half --save {}", scratch_ / "saved")), words);
  expect_refused(nlbench("run zoo:simple_cnn --precision half --transport threads"), words);
  const std::string file = scratch_.write("s.yaml", small_scenario());
  const auto itself = HasSubstr("--precision is for a model alone: a scenario says its model's itself");
  expect_refused(nlsim(fmt::format("lower {} --precision float16", file)), itself);
  expect_refused(nlbench(fmt::format("run {} --precision float16 --transport threads", file)), itself);
  expect_refused(nlsim(fmt::format("show {} --memory --precision float16", file)),
                 HasSubstr("--precision are for a model: a scenario says all that itself"));
}

TEST_F(Refusals, AModelIsRefusedAtItsLine) {
  scratch_.write("m.onnx", "no model");
  expect_all_refuse(with(small_scenario(), "zoo:simple_cnn", "m.onnx"),
                    AllOf(StartsWith(at("1:8")), HasSubstr("not an ONNX model"), HasSubstr("\n  | model: m.onnx")));
  expect_all_refuse(with(small_scenario(), "simple_cnn", "lenet"),
                    AllOf(StartsWith(at("1:8")), HasSubstr("simple_cnn, mlp, alexnet")));
}

TEST_F(Refusals, APlanIsRefusedAtItsLine) {
  expect_all_refuse(with(small_scenario(), "..relu1@A", "..relu2@A"),
                    AllOf(StartsWith(at("14:9")), HasSubstr("'..relu2@B'")));
  expect_all_refuse(with(small_scenario(), ", rest@C", ""), AllOf(StartsWith(at("14:9")), HasSubstr("rest")));
}

// Other plans fit, so ranking goes on and says why this one is not in it; asked for by name it is an error.
TEST_F(Refusals, APlanOfOnesOwnThatDoesNotFit) {
  const std::string file = scratch_.write("s.yaml", with(small_scenario(), "C: {host: c, kind: cpu, memory: 64MiB",
                                                         "C: {host: c, kind: cpu, memory: 64KiB"));
  EXPECT_THAT(nlsim("rank " + file).out,
              HasSubstr("note     mine does not fit in 1, 2 or 4 micro-batches: C has 64 KiB and would need"));
  const auto reason = HasSubstr("plan mine does not fit in 1, 2 or 4 micro-batches: C has 64 KiB");
  expect_refused(nlsim("lower " + file + " --plan mine"), reason);
  expect_refused(nlbench("run " + file + " --plan mine --transport threads"), reason);
}

TEST_F(Refusals, PlacesThatCannotBeWritten) {
  const std::string file = scratch_.write("s.yaml", small_scenario()), no_folder = scratch_.write("file", "");
  const std::string blocked = no_folder + "/x";
  for (const char* command : {"rank {} --json {}", "rank {} --csv {}", "rank {} --save-plans {}",
                              "simulate {} --trace {}", "simulate {} --json {}", "lower {} --save {}"}) {
    expect_refused(nlsim(fmt::format(fmt::runtime(command), file, blocked)), HasSubstr(no_folder));
  }
  expect_refused(nlsim("export zoo:simple_cnn -o " + blocked), HasSubstr(no_folder));
  for (const char* command :
       {"run {} --transport threads --json {}", "run {} --transport threads --output {}", "profile {} -o {}"}) {
    expect_refused(nlbench(fmt::format(fmt::runtime(command), file, blocked)), HasSubstr(no_folder));
  }
}

TEST_F(Refusals, NameTheScenario) {
  const std::string file = scratch_.write("s.yaml", small_scenario());
  expect_refused(nlsim("lower " + file + " --train"), StartsWith("error: " + file + ": the workload does not train"));
  for (const char* plan : {"999", "none"})
    expect_refused(nlsim(fmt::format("simulate {} --plan {}", file, plan)),
                   StartsWith("error: " + file + ": there is no plan "));
  expect_refused(nlsim("collectives " + file + " --size -5MiB"), StartsWith("error: --size: '-5MiB' is negative"));
}

// Before the work: the model of this scenario is missing, and nobody has looked yet.
TEST_F(Refusals, PlacesThatCannotBeWrittenAreSaidFirst) {
  const std::string file = scratch_.write("s.yaml", with(small_scenario(), "zoo:simple_cnn", "missing.onnx"));
  for (const char* command :
       {"rank {} --json {}", "rank {} --csv {}", "rank {} --html {}", "simulate {} --trace {}", "simulate {} --json {}",
        "simulate {} --decisions {}", "check {} --json {}", "hostfile {} -o {}"}) {
    SCOPED_TRACE(command);
    expect_refused(nlsim(fmt::format(fmt::runtime(command), file, scratch_ / "none/x")),
                   HasSubstr("there is no folder " + (scratch_ / "none")));
    expect_refused(nlsim(fmt::format(fmt::runtime(command), file, scratch_ / "")), HasSubstr("Is a directory"));
  }
}

TEST_F(Refusals, AFullDiskBehindStandardOutputIsNotSilent) {
  const std::string file = scratch_.write("s.yaml", small_scenario());
  // Little, which is written in the end; and more than is held back.
  for (const std::string& command : {"rank " + file, "rank " + file + " --top 1000 --explain",
                                     "rank " + file + " --json -", std::string("show zoo:resnet50")}) {
    SCOPED_TRACE(command);
    const Outcome outcome = run_command(fmt::format("sh -c '{}/nlsim {} > /dev/full'", NLS_BIN_DIR, command));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output"));
  }
}

TEST_F(Refusals, UsageIsSaidInAFewWords) {
  const std::string file = scratch_.write("s.yaml", small_scenario());
  for (const std::string& arguments : {"rank " + file + " --bogus",
                                       "rank " + file + " --top 0",
                                       "rank " + file + " --top many",
                                       "rank " + file + " --seed -1",
                                       "rank " + file + " --json - --csv -",
                                       std::string("rank m.onnx"),
                                       "lower " + file + " --plan 1 --plan-file p.yaml",
                                       std::string("lower zoo:simple_cnn --plan 1"),
                                       "lower " + file + " --isa v3",
                                       std::string("lower zoo:simple_cnn --isa v9"),
                                       std::string("lower what"),
                                       std::string("simulate zoo:simple_cnn"),
                                       std::string("export zoo:simple_cnn"),
                                       std::string("export zoo:lenet -o x.onnx"),
                                       std::string("export m.onnx -o x.onnx"),
                                       std::string("show zoo:simple_cnn --input-shape input=1,x"),
                                       std::string("show zoo:simple_cnn --input-shape input=1,3,8,8"),
                                       std::string("show zoo:simple_cnn --dim n=1"),
                                       std::string("show m.onnx --dim n"),
                                       std::string("show m.onnx --dim n=x")}) {
    const Outcome outcome = nlsim(arguments);
    expect_refused(outcome, ::testing::Not(""));
    EXPECT_LT(outcome.err.size(), 300u) << arguments << "\n" << outcome.err;
  }
}

// A search that would take minutes answers Ctrl-C at once with what it found so far. `--foreground`: one signal, not
// two.
TEST_F(Refusals, AnInterruptIsExitCode130) {
  const std::string four_machines = value_of(read_file(std::string(NLS_SOURCE_DIR) + "/scenarios/four_machines.yaml"));
  const std::string long_search = with(four_machines, "  keep: 20", "  max_candidates: 1000000\n  keep: 20");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_command(fmt::format("timeout --foreground --preserve-status -s INT 3 {}/nlsim rank {}",
                                                  NLS_BIN_DIR, scratch_.write("s.yaml", long_search)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("interrupted: the best of the plans looked at so far"));
  EXPECT_LT(seconds, 13);  // 4 s alone
}

}  // namespace
}  // namespace nlsplit
