// Bad input: exit code 2, a message on stderr that says where and what, nothing on stdout, no file written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tools/onnx_bytes.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view good = R"(model: zoo:simple_cnn
workload: {batch: 8, micro_batches: [1, 2]}
devices:
  A: &machine {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
  B: {<<: *machine, host: b}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 50us}
source: a
sink: b
)";

class BadInput : public Programs {
 protected:
  // The good scenario with its only `from` replaced.
  std::string with(std::string_view from, std::string_view to) const {
    std::string text(good);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from << " is there twice";
    return text.replace(at, from.size(), to);
  }

  void expect_refused(const Ran& ran, const ::testing::Matcher<const std::string&>& message) const {
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, message);
  }

  // By every command that reads a scenario, and nothing is left behind.
  void expect_scenario_refused(const std::string& text, const ::testing::Matcher<const std::string&>& message) {
    write("s.yaml", text);
    expect_refused(nlsim({"rank", "s.yaml", "--json", "r.json", "--csv", "r.csv", "--save-plans", "plans"}), message);
    expect_refused(nlsim({"lower", "s.yaml", "--save", "saved"}), message);
    expect_refused(nlsim({"simulate", "s.yaml", "--trace", "t.json"}), message);
    expect_refused(nlbench({"run", "s.yaml", "--transport", "threads", "--output", "y.npy", "--json", "r.json"}), message);
    for (const char* name : {"r.json", "r.csv", "plans", "saved", "t.json", "y.npy"}) {
      EXPECT_FALSE(exists(name)) << name << " was written";
    }
  }
  void expect_model_refused(const std::string& file, const std::string& message) {
    expect_scenario_refused(with("zoo:simple_cnn", file),
                            AllOf(StartsWith("error: s.yaml:1:8: "), HasSubstr(message), HasSubstr("\n  | model: " + file)));
    expect_refused(nlsim({"show", file}), HasSubstr(message));
    expect_refused(nlbench({"run", file, "--transport", "threads"}), HasSubstr(message));
  }
};

TEST_F(BadInput, TheGoodScenarioIsGood) {
  write("s.yaml", good);
  const Ran ran = nlsim({"rank", "s.yaml"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");  // no progress bar either
}

TEST_F(BadInput, MissingModel) { expect_model_refused("none.onnx", "cannot read 'none.onnx'"); }

TEST_F(BadInput, EmptyModel) {
  write("m.onnx", "");
  expect_model_refused("m.onnx", "the file is empty");
}

TEST_F(BadInput, NoOnnxModel) {
  write("m.onnx", "hello, world\n");
  expect_model_refused("m.onnx", "not an ONNX model");
}

TEST_F(BadInput, TruncatedModel) {
  const std::string whole = onnx_bytes::model({onnx_bytes::node("Relu", {"x"}, "y", "r")},
                                              {onnx_bytes::value("x", {1, 4})}, {onnx_bytes::value("y", {1, 4})});
  write("m.onnx", whole);
  EXPECT_EQ(nlsim({"show", "m.onnx"}).code, 0);
  write("m.onnx", whole.substr(0, whole.size() / 2));
  expect_model_refused("m.onnx", "truncated");
}

TEST_F(BadInput, UnsupportedOperatorNamesNodeOperatorAndOpset) {
  write("m.onnx", onnx_bytes::model({onnx_bytes::node("Det", {"x"}, "y", "determinant")},
                                    {onnx_bytes::value("x", {1, 4, 4})}, {onnx_bytes::value("y", {1})}, 11));
  expect_model_refused("m.onnx", "Det");
  EXPECT_THAT(nlsim({"show", "m.onnx"}).err, AllOf(HasSubstr("determinant"), HasSubstr("11")));
}

TEST_F(BadInput, ShapeMismatch) {
  write("m.onnx", onnx_bytes::model({onnx_bytes::node("Add", {"x", "z"}, "y", "sum")},
                                    {onnx_bytes::value("x", {1, 4}), onnx_bytes::value("z", {1, 3})},
                                    {onnx_bytes::value("y", {1, 4})}));
  expect_model_refused("m.onnx", "sum");
}

TEST_F(BadInput, UnknownZooModel) {
  expect_scenario_refused(with("simple_cnn", "lenet"), AllOf(StartsWith("error: s.yaml:1:8: "), HasSubstr("simple_cnn, alexnet")));
  expect_refused(nlsim({"show", "zoo:lenet"}), HasSubstr("resnet50"));
}

TEST_F(BadInput, UnknownKey) {
  expect_scenario_refused(with("sink: b", "sink: b\nsorce: a"),
                          AllOf(StartsWith("error: s.yaml:10:1: "), HasSubstr("'sorce'"), HasSubstr("\n  | sorce: a")));
}

TEST_F(BadInput, WrongUnit) {
  expect_scenario_refused(with("memory: 1GiB", "memory: 1Gbps"),
                          AllOf(StartsWith("error: s.yaml:4:33: "), HasSubstr("'1Gbps'"), HasSubstr("GiB"), HasSubstr("\n  |   A: ")));
}

TEST_F(BadInput, MissingField) {
  expect_scenario_refused(with("sink: b\n", ""), AllOf(StartsWith("error: s.yaml:1:1: "), HasSubstr("lacks 'sink'")));
  expect_scenario_refused(with(", latency: 50us", ""), AllOf(StartsWith("error: s.yaml:7:"), HasSubstr("latency")));
}

TEST_F(BadInput, DuplicateName) {
  expect_scenario_refused(with("  B: ", "  A: "), AllOf(StartsWith("error: s.yaml:5:3: "), HasSubstr("'A'"), HasSubstr("line 4")));
}

TEST_F(BadInput, BrokenYaml) {
  expect_scenario_refused(with("source: a", "source: [a"), StartsWith("error: s.yaml:"));
}

TEST_F(BadInput, UnknownHost) {
  expect_scenario_refused(with("sink: b", "sink: bb"), AllOf(StartsWith("error: s.yaml:9:7: "), HasSubstr("'bb'"), HasSubstr("'b'")));
}

TEST_F(BadInput, UnknownDeviceAndLayerInAPlan) {
  expect_scenario_refused(std::string(good) + "plans: {mine: [..relu1@A, rest@Z]}\n",
                          AllOf(StartsWith("error: s.yaml:10:15: "), HasSubstr("'rest@Z'"), HasSubstr("A, B")));
  expect_scenario_refused(std::string(good) + "plans: {mine: [..relu9@A, rest@B]}\n",
                          AllOf(StartsWith("error: s.yaml:10:15: "), HasSubstr("'relu9'"), HasSubstr("'relu1'")));
  expect_scenario_refused(std::string(good) + "plans: {mine: [..relu2@A, ..relu1@B, rest@A]}\n",
                          AllOf(HasSubstr("'..relu1@B'"), HasSubstr("out of order")));
}

TEST_F(BadInput, NothingFits) {
  expect_scenario_refused(with("1GiB", "16KiB"),
                          AllOf(StartsWith("error: s.yaml: no plan fits"), HasSubstr("A has 16 KiB"), HasSubstr("needs")));
}

// Other plans fit, so ranking goes on, and says why this one is missing; asked for by name it is an error.
TEST_F(BadInput, APlanThatCannotFit) {
  write("s.yaml", with("  B: {<<: *machine, host: b}", "  B: {<<: *machine, host: b, memory: 512KiB}") +
                      "plans: {mine: {stages: [..relu1@A, rest@B], micro_batches: [1, 2]}}\n");
  const Ran ranked = nlsim({"rank", "s.yaml"});
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, AllOf(HasSubstr("note     mine does not fit in 1 or 2 micro-batches: B has 512 KiB and would need"),
                                HasSubstr("plans do not fit: B has 512 KiB")));
  expect_refused(nlsim({"lower", "s.yaml", "--plan", "mine"}), HasSubstr("plan mine does not fit in 1 or 2 micro-batches: B has 512 KiB"));
  write("p.yaml", "stages: [..relu1@A, rest@B]\n");
  expect_refused(nlsim({"simulate", "s.yaml", "--plan-file", "p.yaml"}), HasSubstr("does not fit"));
}

TEST_F(BadInput, DisconnectedCluster) {
  expect_scenario_refused(with("sink: b\n", "sink: b\nswitches: [sw]\n").replace(0, 0, "").replace(
                              std::string(good).find("[a, b]"), 6, "[a, sw]"),
                          AllOf(StartsWith("error: s.yaml:"), HasSubstr("'a'"), HasSubstr("'b'")));
}

TEST_F(BadInput, TooManyAndTooFewRanks) {
  write("s.yaml", std::string(good) + "plans: {mine: [..relu1@A, rest@B]}\n");
  for (const int ranks : {1, 3}) {
    const Ran ran = nlbench_on(ranks, {"run", "s.yaml", "--plan", "mine", "--json", "r.json", "--output", "y.npy"});
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_EQ(ran.out.find("throughput"), std::string::npos);
    EXPECT_THAT(ran.err, HasSubstr("this plan runs on 2 devices (A, B): start it with mpirun -np 2"));
    EXPECT_FALSE(exists("r.json") || exists("y.npy"));
  }
}

TEST_F(BadInput, MissingProfileNamesTheCommandThatMeasures) {
  expect_scenario_refused(with("{roofline: {compute: 60GFLOPS, memory: 10GBps}}", "p.json"),
                          AllOf(StartsWith("error: s.yaml:4:"), HasSubstr("nlbench profile s.yaml -o p.json")));
}

TEST_F(BadInput, ProfileOfAnotherModelOrVersion) {
  const std::string profile = R"({"format": "nlsplit-profile", "version": %, "model": "resnet18", "machine": "m", "kernels": [
    {"signature": "s", "median_s": 0.001, "spread_s": 0.0001, "repeats": 20}]})";
  const auto of_version = [&](char version) {
    std::string text = profile;
    text[text.find('%')] = version;
    return text;
  };
  const std::string scenario = with("{roofline: {compute: 60GFLOPS, memory: 10GBps}}", "p.json");
  write("p.json", of_version('1'));
  expect_scenario_refused(scenario, AllOf(HasSubstr("measured for resnet18, not for simple_cnn"), HasSubstr("layer 'conv1'"),
                                          HasSubstr("nlbench profile s.yaml -o p.json")));
  write("p.json", of_version('9'));
  expect_scenario_refused(scenario, AllOf(StartsWith("error: s.yaml:4:"), HasSubstr("version 9")));
  write("p.json", "{");
  expect_scenario_refused(scenario, HasSubstr("p.json"));
}

TEST_F(BadInput, UnknownPlan) {
  write("s.yaml", std::string(good) + "plans: {mine: [..relu1@A, rest@B]}\n");
  for (const char* which : {"999", "0", "1x", "yours"}) {
    for (const char* command : {"lower", "simulate"}) {
      expect_refused(nlsim({command, "s.yaml", "--plan", which}), AllOf(HasSubstr("there is no plan"), HasSubstr(which)));
    }
    expect_refused(nlbench({"run", "s.yaml", "--transport", "threads", "--plan", which}), HasSubstr("there is no plan"));
  }
  EXPECT_THAT(nlsim({"lower", "s.yaml", "--plan", "yours"}).err, HasSubstr("mine"));
}

TEST_F(BadInput, PlanFile) {
  write("s.yaml", good);
  expect_refused(nlsim({"simulate", "s.yaml", "--plan-file", "none.yaml"}), HasSubstr("cannot read 'none.yaml'"));
  write("p.yaml", "stages: [..reluX@A, rest@B]\n");
  expect_refused(nlsim({"simulate", "s.yaml", "--plan-file", "p.yaml"}), AllOf(StartsWith("error: p.yaml:1:"), HasSubstr("'reluX'")));
  write("p.yaml", "stages: [..relu1@A, rest@B]\nmicro_batches: [3]\n");
  expect_refused(nlsim({"simulate", "s.yaml", "--plan-file", "p.yaml"}), AllOf(StartsWith("error: p.yaml:"), HasSubstr("3")));
}

TEST_F(BadInput, Usage) {
  write("s.yaml", good);
  const std::vector<std::vector<std::string>> wrong = {
      {}, {"frobnicate"}, {"rank"}, {"rank", "s.yaml", "--bogus"}, {"rank", "s.yaml", "--top", "0"},
      {"rank", "s.yaml", "--top", "many"}, {"rank", "s.yaml", "--seed", "-1"}, {"rank", "m.onnx"},
      {"rank", "s.yaml", "--json", "-", "--csv", "-"}, {"lower", "s.yaml", "--plan", "1", "--plan-file", "p.yaml"},
      {"lower", "zoo:simple_cnn", "--plan", "1"}, {"lower", "zoo:simple_cnn", "--batch", "0"}, {"lower", "what"},
      {"simulate", "zoo:simple_cnn"}, {"show", "zoo:simple_cnn", "--input-shape", "input=1,x"},
      {"show", "zoo:simple_cnn", "--input-shape", "input=1,3,8,8"}};
  for (const auto& arguments : wrong) {
    const Ran ran = nlsim(arguments);
    EXPECT_EQ(ran.code, 2) << fmt::format("nlsim {}: {}", fmt::join(arguments, " "), ran.err);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err, "");
    EXPECT_LT(ran.err.size(), 300u) << ran.err;  // no lecture
  }
  expect_refused(nlbench({"run", "s.yaml", "--batch", "4"}), HasSubstr("--batch"));
  expect_refused(nlbench({"run", "zoo:simple_cnn", "--transport", "pigeons"}), HasSubstr("pigeons"));
  expect_refused(nlbench({"profile", "s.yaml"}), HasSubstr("--output"));
}

TEST_F(BadInput, PlacesThatCannotBeWritten) {
  write("s.yaml", good);
  write("file", "");
  for (const char* option : {"--json", "--csv"}) {
    expect_refused(nlsim({"rank", "s.yaml", option, "no/such/folder/x"}), HasSubstr("no/such/folder/x"));
  }
  expect_refused(nlsim({"rank", "s.yaml", "--save-plans", "file/plans"}), HasSubstr("file/plans"));
  expect_refused(nlsim({"simulate", "s.yaml", "--trace", "no/such/t.json"}), HasSubstr("no/such/t.json"));
  expect_refused(nlsim({"lower", "s.yaml", "--save", "file/saved"}), HasSubstr("file/saved"));
}

TEST_F(BadInput, AFullDiskBehindStandardOutputIsNotSilent) {
  write("s.yaml", good);
  const Ran ran = run("/bin/sh", {"-c", std::string(NLS_BIN_DIR) + "/nlsim rank s.yaml > /dev/full"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("standard output"));
}

}  // namespace
}  // namespace nlsplit
