// The zoo against the published figures, and its text.
#include "graph/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/ops.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo_families.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Model model_of(std::string_view name) { return zoo_model(name).value(); }

// What training would change: running means and variances are statistics, not parameters.
int64_t parameters_of(const Graph& graph) {
  int64_t count = 0;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::weight && value.name.find(".running_") == std::string::npos)
      count += element_count(value.type.shape);
  }
  return count;
}

double multiply_adds_of(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::Conv || node.op == Op::Gemm) flops += work_of(graph, node).flops.value();
  }
  return flops / 2;
}

struct Published {
  const char* name;
  int64_t parameters;    // torchvision's documentation
  double multiply_adds;  // likewise, in 1e9 ("GFLOPS" there)
};

class ZooPublished : public ::testing::TestWithParam<Published> {};

TEST_P(ZooPublished, ParametersAndWork) {
  const Model model = model_of(GetParam().name);
  EXPECT_EQ(parameters_of(model.graph), GetParam().parameters);
  EXPECT_NEAR(multiply_adds_of(model.graph) / 1e9, GetParam().multiply_adds, 0.006);  // rounded to 0.01 there
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooPublished,
                         ::testing::Values(Published{"alexnet", 61100840, 0.71}, Published{"vgg16", 138357544, 15.47},
                                           Published{"resnet18", 11689512, 1.81}, Published{"resnet50", 25557032, 4.09},
                                           Published{"mobilenet_v2", 3504872, 0.30}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Zoo, EveryModelIsValidAndReadsBack) {
  std::set<std::string_view> names;
  for (const ZooEntry& entry : zoo()) {
    SCOPED_TRACE(entry.name);
    EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_FALSE(entry.what.empty());
    const Model model = model_of(entry.name);
    EXPECT_TRUE(verify(model.graph).ok()) << verify(model.graph).error().to_string();
    EXPECT_EQ(model.graph.name, entry.name);
    ASSERT_EQ(model.graph.inputs.size(), 1u);
    EXPECT_EQ(model.graph.value(model.graph.inputs[0]).type.shape[0], 1);
    ASSERT_EQ(model.graph.outputs.size(), 1u);
    EXPECT_EQ(model.weights.stored_bytes().value(), 0) << "weights are recipes until asked for";
    const auto parsed = parse_graph(to_string(model.graph), "zoo");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(*parsed, model.graph);
  }
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"simple_cnn", "alexnet", "vgg16", "resnet18", "resnet50", "mobilenet_v2"}));
}

TEST(Zoo, UnknownNameSaysWhichThereAre) {
  const auto model = zoo_model("resnet51");
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message,
              AllOf(HasSubstr("resnet51"), HasSubstr("did you mean \"resnet50\"?"), HasSubstr("mobilenet_v2")));
}

TEST(Zoo, SeedsMakeWeights) {
  const auto content = [](uint64_t seed, size_t i) {
    const Model model = zoo_model("simple_cnn", seed).value();
    return model.graph.values[i].content;
  };
  EXPECT_EQ(content(1, 1), content(1, 1));
  EXPECT_NE(content(1, 1), content(2, 1));
  EXPECT_NE(content(1, 1), content(1, 2));
}

TEST(Zoo, LayersHaveTorchvisionsNames) {
  const auto names_of = [](const Model& model) {
    std::set<std::string> names;
    for (const Node& node : model.graph.nodes) names.insert(node.name);
    return names;
  };
  EXPECT_THAT(names_of(model_of("resnet50")),
              ::testing::IsSupersetOf({"conv1", "bn1", "relu", "maxpool", "layer1.0.downsample.0", "layer3.5.conv3",
                                       "layer4.2.bn3", "avgpool", "fc"}));
  EXPECT_THAT(names_of(model_of("resnet18")),
              ::testing::IsSupersetOf({"layer2.0.downsample.1", "layer4.1.conv2", "layer4.1.add"}));
  EXPECT_THAT(names_of(model_of("vgg16")),
              ::testing::IsSupersetOf({"features.0", "features.28", "features.30", "classifier.6"}));
  EXPECT_THAT(names_of(model_of("alexnet")),
              ::testing::IsSupersetOf({"features.0", "features.10", "features.12", "classifier.1"}));
  EXPECT_THAT(names_of(model_of("mobilenet_v2")),
              ::testing::IsSupersetOf({"features.0.0", "features.1.conv.0.0", "features.1.conv.1",
                                       "features.2.conv.1.0", "features.17.conv.3", "features.18.2", "classifier.1"}));
}

// Every activation of every layer stays within a factor of about 30 of the input's deviation of 1, and two inputs give
// two outputs.
void expect_lively(Model model) {
  std::vector<ValueId> all;
  for (const Node& node : model.graph.nodes) all.push_back(node.outputs[0]);
  model.graph.outputs = all;
  const auto first = evaluate(model.graph, model.weights, random_inputs(model.graph, 1));
  const auto second = evaluate(model.graph, model.weights, random_inputs(model.graph, 2));
  ASSERT_TRUE(first.ok()) << first.error().to_string();
  ASSERT_TRUE(second.ok()) << second.error().to_string();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_GT(deviation_of((*first)[i]), 0.03) << model.graph.nodes[i].name;
    EXPECT_LT(deviation_of((*first)[i]), 30) << model.graph.nodes[i].name;
  }
  Tensor difference = first->back();
  for (size_t i = 0; i < difference.values.size(); ++i) difference.values[i] -= second->back().values[i];
  EXPECT_GT(deviation_of(difference), 0.03 * deviation_of(first->back()));
}

TEST(ZooActivations, SimpleCnn) { expect_lively(model_of("simple_cnn")); }
TEST(ZooActivations, Alexnet) { expect_lively(model_of("alexnet")); }
TEST(ZooActivations, Resnet18) { expect_lively(build_resnet(18, 1, 64)); }
TEST(ZooActivations, Resnet50) { expect_lively(build_resnet(50, 1, 64)); }
TEST(ZooActivations, MobilenetV2) { expect_lively(build_mobilenet_v2(1, 64)); }

TEST(Zoo, SimpleCnnAsText) {
  EXPECT_EQ(to_string(model_of("simple_cnn").graph), R"(graph "simple_cnn"
input %input f32[1,3,8,8]
weight %conv1.weight f32[16,3,3,3] content f29c0798ce3f3eef
weight %conv1.bias f32[16] content 732f498698186c79
%conv1 f32[1,16,8,8] = Conv(%input, %conv1.weight, %conv1.bias) {dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]} as "conv1"
%relu1 f32[1,16,8,8] = Relu(%conv1) as "relu1"
weight %conv2.weight f32[32,16,3,3] content 98401e62e10fa9c0
weight %conv2.bias f32[32] content ec74bb66512edfc0
%conv2 f32[1,32,8,8] = Conv(%relu1, %conv2.weight, %conv2.bias) {dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]} as "conv2"
%relu2 f32[1,32,8,8] = Relu(%conv2) as "relu2"
%flatten f32[1,2048] = Flatten(%relu2) {axis=1} as "flatten"
weight %fc1.weight f32[128,2048] content c84c8257ef839d4f
weight %fc1.bias f32[128] content 4b4867efc40fdc9f
%fc1 f32[1,128] = Gemm(%flatten, %fc1.weight, %fc1.bias) {alpha=1.0, beta=1.0, transA=0, transB=1} as "fc1"
%relu3 f32[1,128] = Relu(%fc1) as "relu3"
weight %fc2.weight f32[10,128] content 9304e870bb946a6e
weight %fc2.bias f32[10] content 412602d1f328373e
%fc2 f32[1,10] = Gemm(%relu3, %fc2.weight, %fc2.bias) {alpha=1.0, beta=1.0, transA=0, transB=1} as "fc2"
output %fc2
)");
}

}  // namespace
}  // namespace nlsplit
