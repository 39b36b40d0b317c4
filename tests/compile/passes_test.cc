// What each pass makes, against texts that were read and found right. NLSPLIT_UPDATE_GOLDEN=1 writes them anew.
#include "graph/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "compile/compile.h"
#include "graph/zoo/zoo.h"
#include "partition/plan.h"
#include "testing/layers.h"
#include "testing/paths.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

struct Case {
  std::string name;
  KernelGraph kernels;
  std::vector<std::string> stages;
  size_t devices = 2, micro_batches = 2;
  std::string schedule = "streaming";
  DType messages = DType::f32;
};

std::string passes_of(const Case& c) {
  Cluster cluster = star(c.devices);
  cluster.messages = c.messages;
  Plan plan;
  plan.stages = parse_stages(c.stages, c.kernels.graph, cluster, nullptr).value();
  plan.micro_batches = c.micro_batches;
  plan.schedule = c.schedule;
  std::string text;
  CompileOptions options;
  options.after_pass = [&](std::string_view pass, const std::string& made) {
    text += "=== " + std::string(pass) + "\n" + made + (made.ends_with('\n') ? "" : "\n");
  };
  const auto compiled = compile(c.kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, options);
  return compiled.ok() ? text : compiled.error().to_string();
}

KernelGraph network(const std::optional<TrainingOptions>& training) {
  if (training) return choose_kernels(testing::layers(2, 2, 8), {Isa::v3}, {}, training).value();
  Model model = zoo_model("simple_cnn").value();
  return choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3}).value();
}

void expect_golden(const Case& c) {
  const std::string file = std::string(NLS_SOURCE_DIR) + "/tests/compile/passes/" + c.name + ".txt";
  const std::string made = passes_of(c);
  if (std::getenv("NLSPLIT_UPDATE_GOLDEN") != nullptr) std::ofstream(file) << made;
  EXPECT_EQ(read_file(file).value(), made) << c.name;
}

TEST(Passes, LayersOnTwoDevices) { expect_golden({"layers", network({}), {"..relu2@A", "rest@B"}}); }

TEST(Passes, MessagesInHalfPrecision) {
  expect_golden({"half_messages", network({}), {"..relu2@A", "rest@B"}, 2, 2, "streaming", DType::f16});
}

// One value of whole blocks, the other not.
TEST(Passes, MessagesInBlocks) {
  expect_golden({"block_messages", network({}), {"..relu2@A", "..relu3@B", "rest@A"}, 2, 2, "streaming", DType::q8_0});
}

TEST(Passes, ALayerInTwoParts) { expect_golden({"split", network({}), {"..relu2@height(A+B)", "rest@A"}}); }

TEST(Passes, ATrainingStep) {
  expect_golden({"training", network(TrainingOptions{}), {"..relu0@A", "rest@B"}, 2, 2, "1f1b"});
}

TEST(Passes, ReplicasThatReduceTheirGradients) {
  expect_golden({"replicas", network(TrainingOptions{}), {"rest@A+B"}, 2, 2, "gpipe"});
}

// The norm is made by the replicas of the first stage; its factor goes to the other stage, the norm to the sink, A.
TEST(Passes, GradientsAreClipped) {
  TrainingOptions options;
  options.optimizer = Optimizer::adamw;
  options.clip = 1;
  expect_golden({"clipping", network(options), {"..relu0@B+C", "rest@D"}, 4, 2, "gpipe"});
}

}  // namespace
}  // namespace nlsplit
