// Bad input gets a clear error, exit code 2, and nothing half-written: each kind once, through the programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/onnx_file.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// Exit code 2, nothing on standard output, and every part in the message.
void expect_refused(const Outcome& outcome, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& part : parts) EXPECT_THAT(outcome.err, HasSubstr(part));
}

class BadScenario : public ::testing::Test {
 protected:
  void refuse(const std::string& text, const std::vector<std::string>& parts) {
    const std::string file = scratch_.write("bad.yaml", text);
    expect_refused(nlsim(fmt::format("rank {} --json {}", file, scratch_ / "answer.json")), parts);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "answer.json"));
  }
  Scratch scratch_;
};

TEST_F(BadScenario, TheUnbrokenOneIsFine) {
  const Outcome outcome = nlsim("rank " + scratch_.write("good.yaml", small_scenario()));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("mine: A ..relu1 | B ..relu2 | C rest"));
}

TEST_F(BadScenario, UnknownKey) { refuse(with(small_scenario(), "sink:", "zink:"), {"bad.yaml:11:1", "zink", "sink"}); }
TEST_F(BadScenario, WrongUnit) { refuse(with(small_scenario(), "1Gbps", "1GB"), {"bad.yaml:8:", "1GB", "bps"}); }
TEST_F(BadScenario, BareNumber) { refuse(with(small_scenario(), "64MiB", "64"), {"bad.yaml:4:", "64", "unit"}); }
TEST_F(BadScenario, MissingField) { refuse(with(small_scenario(), "source: a\n", ""), {"bad.yaml", "source"}); }
TEST_F(BadScenario, DuplicateName) {
  refuse(with(small_scenario(), "  B: {host: b", "  A: {host: b"), {"bad.yaml:5:3", "A"});
}
TEST_F(BadScenario, UnknownHost) { refuse(with(small_scenario(), "[b, c]", "[b, z]"), {"bad.yaml:9:", "z"}); }
TEST_F(BadScenario, UnknownDevice) { refuse(with(small_scenario(), "rest@C", "rest@Z"), {"bad.yaml:14:", "Z"}); }
TEST_F(BadScenario, UnknownLayer) {
  refuse(with(small_scenario(), "..relu2@B", "..relu9@B"), {"bad.yaml:14:", "relu9", "relu"});
}
TEST_F(BadScenario, Disconnected) {
  refuse(with(small_scenario(), "  - {between: [b, c], bandwidth: 1Gbps, latency: 10us}\n", ""), {"bad.yaml", "c"});
}
TEST_F(BadScenario, NothingFits) {
  std::string text = small_scenario();
  for (int i = 0; i < 3; ++i) text = with(text, "64MiB", "64KiB");
  refuse(text, {"bad.yaml:3:1: no plan fits", "64 KiB"});
}
TEST_F(BadScenario, ModelIsMissing) {
  refuse(with(small_scenario(), "zoo:simple_cnn", "nothing.onnx"), {"bad.yaml:1:", "nothing.onnx"});
}
TEST_F(BadScenario, ProfileIsMissing) {
  refuse(with(small_scenario(), "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json"),
         {"p.json", "nlbench profile"});
}
TEST_F(BadScenario, ProfileOfAnotherModel) {
  scratch_.write(
      "p.json",
      R"({"format": "nlsplit-profile", "version": 2, "models": ["resnet18"], "machine": "m", "beside": 0, "measured_at_s": 0, "kernels": []})");
  refuse(with(small_scenario(), "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json"),
         {"p.json", "resnet18", "nlbench profile"});
}
TEST_F(BadScenario, ProfileOfAnotherVersion) {
  scratch_.write(
      "p.json", R"({"format": "nlsplit-profile", "version": 7, "model": "simple_cnn", "machine": "m", "kernels": []})");
  refuse(with(small_scenario(), "costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}", "costs: p.json"),
         {"p.json", "version"});
}

TEST(BadPlan, ThatCannotFitIsSaidSo) {
  const Scratch scratch;
  // C holds neither the fully connected layers nor anything else of the plan.
  const std::string file = scratch.write("tight.yaml", with(small_scenario(), "C: {host: c, kind: cpu, memory: 64MiB",
                                                            "C: {host: c, kind: cpu, memory: 64KiB"));
  const Outcome ranked = nlsim("rank " + file);
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("do not fit: C has 64 KiB"));
  const std::string plan = scratch.write("mine.yaml", "stages: [..relu1@A, ..relu2@B, rest@C]\n");
  expect_refused(nlsim(fmt::format("simulate {} --plan-file {}", file, plan)), {"C has 64 KiB"});
}

TEST(BadPlan, NumberOrNameThatIsNone) {
  const Scratch scratch;
  const std::string file = scratch.write("s.yaml", small_scenario());
  expect_refused(nlsim("lower " + file + " --plan 9999"), {"there is no plan 9999"});
  expect_refused(nlsim("lower " + file + " --plan yours"), {"there is no plan called yours", "mine"});
  expect_refused(nlsim("lower " + file + " --plan-file " + scratch.write("p.yaml", "stages: [..relu1@A]\n")),
                 {"p.yaml", "rest"});
}

class BadModel : public ::testing::Test {
 protected:
  void refuse(const std::string& file, const std::vector<std::string>& parts) {
    expect_refused(nlsim("show " + file), parts);
    const std::string saved = scratch_ / "saved";
    expect_refused(nlsim(fmt::format("lower {} --save {}", file, saved)), parts);
    EXPECT_FALSE(std::filesystem::exists(saved));
  }
  Scratch scratch_;
};

TEST_F(BadModel, Missing) { refuse(scratch_ / "none.onnx", {"none.onnx", "No such file"}); }
TEST_F(BadModel, Empty) { refuse(scratch_.write("m.onnx", ""), {"m.onnx", "empty"}); }
TEST_F(BadModel, NoOnnx) { refuse(scratch_.write("m.onnx", "hello world"), {"m.onnx", "not an ONNX model"}); }
TEST_F(BadModel, NotInTheZoo) { refuse("zoo:resnet51", {"resnet51", "resnet50"}); }
TEST_F(BadModel, Truncated) {
  OnnxFile file(13);
  file.input("x", {1, 3});
  file.node("Relu", {"x"}, "y");
  file.output("y");
  const std::string whole = file.model().SerializeAsString();
  refuse(scratch_.write("m.onnx", whole.substr(0, whole.size() - 5)), {"m.onnx"});
}
TEST_F(BadModel, UnsupportedOperator) {
  OnnxFile file(13);
  file.input("x", {1, 3});
  file.node("TfIdfVectorizer", {"x"}, "y", "my_node");
  file.output("y");
  refuse(scratch_.write("m.onnx", file.model().SerializeAsString()), {"my_node", "TfIdfVectorizer", "opset 13"});
}
TEST_F(BadModel, ShapesThatDoNotFit) {
  OnnxFile file(13);
  file.input("x", {1, 3});
  file.input("z", {1, 4});
  file.node("Add", {"x", "z"}, "y", "my_add");
  file.output("y");
  refuse(scratch_.write("m.onnx", file.model().SerializeAsString()), {"my_add", "3", "4"});
}

TEST(BadRun, TooFewAndTooManyRanks) {
  const Scratch scratch;
  const std::string file = scratch.write("s.yaml", small_scenario());
  for (const int ranks : {2, 4}) {
    const Outcome outcome = mpirun(ranks, "run " + file + " --plan mine");
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("this plan runs on 3 devices (A, B, C), and "));
  }
}

TEST(BadRun, InputsOfAnotherShape) {
  const Scratch scratch;
  const std::string file = scratch.write("s.yaml", small_scenario());
  scratch.write("x.npy", "not numpy");
  const Outcome outcome = nlbench(fmt::format("run {} --plan mine --transport threads --input {} --output {}", file,
                                              scratch / "x.npy", scratch / "y.npy"));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("x.npy"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "y.npy"));
}

TEST(BadRun, ADamagedFolder) {
  const Scratch scratch;
  const std::string folder = scratch / "saved";
  ASSERT_EQ(nlsim("lower zoo:simple_cnn --save " + folder).code, 0);
  ASSERT_EQ(nlbench("run " + folder + " --transport threads --repeats 1").code, 0);
  std::filesystem::resize_file(folder + "/weights.bin", 1000);
  const Outcome outcome = nlbench("run " + folder + " --transport threads");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("truncated"));
}

TEST(BadUsage, IsExitCodeTwo) {
  for (const char* arguments : {"", "rank", "frobnicate", "rank x.yaml --top -1", "show zoo:simple_cnn --batch 0"}) {
    EXPECT_EQ(nlsim(arguments).code, 2) << arguments;
  }
  for (const char* arguments : {"", "run", "profile", "run x --transport pigeons"})
    EXPECT_EQ(nlbench(arguments).code, 2) << arguments;
  EXPECT_EQ(nlsim("--help").code, 0);
  EXPECT_EQ(nlbench("--help").code, 0);
}

}  // namespace
}  // namespace nlsplit
