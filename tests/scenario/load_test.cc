#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "graph/passes/precision.h"
#include "graph/zoo/zoo.h"
#include "partition/plan.h"
#include "scenario/scenario.h"
#include "sim/simgrid/platform.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string scenario_text(const std::string& model) {
  return "model: " + model + R"(
workload: {batch: 4}
devices: {A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}}
source: a
sink: a
)";
}

TEST(LoadModel, OptimizesWhatTheZooBuilds) {
  const Model plain = zoo_model("simple_cnn", 1).value();
  const Model loaded = load_model(parse_scenario(scenario_text("zoo:simple_cnn"), "s.yaml").value()).value();
  EXPECT_LT(loaded.graph.nodes.size(), plain.graph.nodes.size());  // its ReLUs are fused
  EXPECT_TRUE(verify(loaded.graph).ok());
}

TEST(LoadModel, SeedsMakeOtherWeights) {
  const auto graph = [](const std::string& model) {
    return load_model(parse_scenario(scenario_text(model), "s.yaml").value()).value().graph;
  };
  EXPECT_EQ(graph("{zoo: simple_cnn, seed: 1}"), graph("zoo:simple_cnn"));
  EXPECT_NE(graph("{zoo: simple_cnn, seed: 2}"), graph("zoo:simple_cnn"));  // other content ids
}

TEST(LoadModel, ReadsGgufFilesWithALength) {
  const auto scenario = [](const std::string& model) { return parse_scenario(scenario_text(model), "s.yaml"); };
  const std::string file = NLS_SOURCE_DIR "/tests/graph/gguf/qwen2.gguf";
  for (const std::string& model : {"'" + file + "?length=5'", "{path: '" + file + "?length=5'}"}) {
    const Graph graph = load_model(scenario(model).value()).value().graph;
    EXPECT_EQ(graph.value(graph.inputs[0]).type, (TensorType{DType::i64, {1, 5}}));
  }
  EXPECT_THAT(load_model(scenario(file).value()).error().to_string(),
              AllOf(HasSubstr("s.yaml:1:8: "), HasSubstr("64, less than the 128 positions wanted")));
  EXPECT_THAT(scenario("{path: x.gguf, dims: {length: 5}}").error().message,
              HasSubstr("'dims' binds extents of an ONNX file; other models have theirs"));
}

TEST(LoadModel, ReadsFoldersWithSafetensors) {
  const auto scenario = [](const std::string& model) { return parse_scenario(scenario_text(model), "s.yaml"); };
  const std::string folder = NLS_SOURCE_DIR "/tests/graph/safetensors/qwen2";
  for (const std::string& model :
       {"'" + folder + "?length=5'", "{path: '" + folder + "?length=5'}", "{safetensors: '" + folder + "?length=5'}"}) {
    const Graph graph = load_model(scenario(model).value()).value().graph;
    EXPECT_EQ(graph.value(graph.inputs[0]).type, (TensorType{DType::i64, {1, 5}}));
  }
  EXPECT_THAT(load_model(scenario("{safetensors: " + folder + "}").value()).error().to_string(),
              HasSubstr("config.json: /max_position_embeddings: 64, less than the 128 positions wanted"));
  EXPECT_THAT(scenario("{safetensors: nowhere}").error().to_string(),
              HasSubstr("s.yaml:1:22: nowhere is not a folder with a config.json"));
  EXPECT_THAT(scenario("{safetensors: '" + folder + "', dims: {length: 5}}").error().message,
              HasSubstr("'dims' binds extents of an ONNX file; other models have theirs"));
}

TEST(LoadModel, ConvertsBehindThePasses) {
  const auto graph = [](const std::string& model) {
    return load_model(parse_scenario(scenario_text(model), "s.yaml").value()).value().graph;
  };
  const Graph plain = graph("zoo:simple_cnn"), half = graph("{zoo: simple_cnn, precision: bfloat16}");
  EXPECT_EQ(half.nodes.size(), plain.nodes.size() + 2) << "a Cast at each end";
  EXPECT_EQ(half.value(half.nodes[1].outputs[0]).type.dtype, DType::bf16);
  EXPECT_EQ(half.value(half.outputs[0]).type, plain.value(plain.outputs[0]).type);
}

TEST(LoadModel, TrainsInBfloat16WithWeightsInFloat32) {
  std::string text = scenario_text("{zoo: simple_cnn, precision: bfloat16}");
  text.replace(text.find("{batch: 4}"), 10, "{mode: training, batch: 4}");
  const Graph graph = load_model(parse_scenario(text, "s.yaml").value()).value().graph;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::weight) {
      EXPECT_EQ(value.type.dtype, DType::f32) << value.name;
    }
  }
  EXPECT_EQ(coarsest_type(graph), DType::bf16);
}

TEST(LoadModel, DoesNotTrainInFloat16) {
  std::string text = scenario_text("{zoo: simple_cnn, precision: float16}");
  text.replace(text.find("{batch: 4}"), 10, "{mode: training, batch: 4}");
  EXPECT_EQ(parse_scenario(text, "s.yaml").error().to_string(),
            "s.yaml:2:18: a model in float16 is for inference: its gradients need loss scaling; bfloat16 trains\n"
            "  | workload: {mode: training, batch: 4}");
}

TEST(LoadModel, ErrorsPointAtTheScenario) {
  const auto unknown = load_model(parse_scenario(scenario_text("zoo:resnet5"), "s.yaml").value());
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().where, (Location{"s.yaml", 1, 8}));
  EXPECT_EQ(unknown.error().fragment, "model: zoo:resnet5");
  EXPECT_THAT(unknown.error().message, HasSubstr("resnet5"));

  const auto missing = load_model(parse_scenario(scenario_text("{path: none.onnx}"), "dir/s.yaml").value());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().where, (Location{"dir/s.yaml", 1, 15}));
  EXPECT_THAT(missing.error().message, HasSubstr("dir/none.onnx"));
  EXPECT_EQ(exit_code(missing.error()), 2);
}

TEST(BundledScenarios, PlansNameLayersOfTheirModels) {
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    const Scenario s = value_of(read_scenario(entry.path().string(), {.platforms = simgrid_platforms()}));
    const Model model = load_model(s).value();
    for (const UserPlan& plan : s.plans) {
      ++plans;
      std::vector<PlanNote> notes;
      const auto stages = parse_plan_stages(plan.stages, model.graph, s.cluster, &notes);
      EXPECT_TRUE(stages.ok()) << at_plan(plan, stages.error()).to_string();
    }
  }
  EXPECT_GE(plans, 4);
}

TEST(BareScenario, IsOneDeviceWithoutCosts) {
  const Scenario s = bare_scenario("zoo:simple_cnn", 3, bytes(1000), Isa::v2);
  EXPECT_EQ(s.batch, 3);
  EXPECT_THAT(s.micro_batches, ::testing::ElementsAre(1));
  ASSERT_EQ(s.cluster.devices.size(), 1u);
  EXPECT_EQ(s.cluster.devices[0].name, "cpu0");
  EXPECT_EQ(s.cluster.devices[0].memory, bytes(1000));
  EXPECT_EQ(s.cluster.devices[0].level, Isa::v2);
  EXPECT_EQ(s.endpoints.source, s.endpoints.sink);
  EXPECT_EQ(s.cluster.devices[0].host, s.endpoints.source);
  EXPECT_TRUE(load_model(s).ok());
  EXPECT_THAT(load_model(bare_scenario("none.onnx", 1, bytes(1000))).error().to_string(), HasSubstr("none.onnx"));
}

TEST(CostTableOfScenario, NamesDevicesAndTheScenario) {
  const Scenario s = bare_scenario("net.onnx", 1, bytes(1000));
  ComputeDesc desc;
  desc.kernel = {KernelName::unary, Isa::v3};
  desc.op = Op::Relu;
  desc.inputs = desc.outputs = {{DType::f32, {1, 8}}};
  EXPECT_EQ(cost_table(s, "net").cost(DeviceId(0), desc, "relu1").error().message,
            "device 'cpu0' has no costs, so layer 'relu1' has none; measure on that machine with: "
            "nlbench profile net.onnx -o profile.json");
}

}  // namespace
}  // namespace nlsplit
