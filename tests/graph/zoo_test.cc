// The zoo against the published figures, and its text.
#include "graph/zoo/zoo.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "graph/elements.h"
#include "graph/operators/operator.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/families.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Model model_of(std::string_view name) { return zoo_model(name).value(); }

double multiply_adds_of(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::Conv || node.op == Op::Gemm || node.op == Op::MatMul)
      flops += work_of(graph, node).flops.value();
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
  EXPECT_EQ(parameter_count(model), GetParam().parameters);
  EXPECT_NEAR(multiply_adds_of(model.graph) / 1e9, GetParam().multiply_adds, 0.006);  // rounded to 0.01 there
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ZooPublished,
    ::testing::Values(Published{"alexnet", 61100840, 0.71}, Published{"vgg16", 138357544, 15.47},
                      Published{"resnet18", 11689512, 1.81}, Published{"resnet50", 25557032, 4.09},
                      Published{"mobilenet_v2", 3504872, 0.30}, Published{"vgg19", 143667240, 19.63},
                      Published{"densenet121", 7978856, 2.83},
                      // 27161264 less the auxiliary classifier's 3326696: convolutions of 768 x 128
                      // and 128 x 768 x 5 x 5, their norms' 2 x (128 + 768), 768 x 1000 + 1000.
                      Published{"inception_v3", 23834568, 5.71}, Published{"efficientnet_b0", 5288548, 0.39},
                      Published{"vit_b16", 86567656, 17.56}),
    [](const auto& info) { return std::string(info.param.name); });

// Language models by their papers or model cards; llama's by its configurations.
TEST(ZooPublished, ParametersOfLanguageModels) {
  const auto count = [](std::string_view name) { return parameter_count(model_of(name)); };
  EXPECT_EQ(count("bert_base"), 109482240);
  EXPECT_EQ(count("bert_base?length=512"), 109482240);
  EXPECT_EQ(count("bert_base?layers=24&hidden=1024&heads=16&ffn=4096"), 335141888);  // BERT large
  EXPECT_EQ(count("gpt2"), 124439808);
  EXPECT_EQ(count("gpt2?layers=48&hidden=1600&heads=25"), 1557611200);  // GPT-2 XL
  EXPECT_EQ(count("llama"), 8030261248);
  EXPECT_EQ(count("llama?layers=80&hidden=8192&heads=64&kv_heads=8&ffn=28672&vocab=128256"), 70553706496);
  EXPECT_EQ(count("qwen3_moe"), 235093634560);
  EXPECT_EQ(count("qwen3_moe?layers=48&hidden=2048&heads=32&ffn=768"), 30532122624);  // 30B-A3B
}

// 22.5 GFLOP for 128 tokens: Sun et al., "MobileBERT", ACL 2020, table 4.
TEST(ZooPublished, WorkOfBert) { EXPECT_NEAR(2 * multiply_adds_of(model_of("bert_base").graph) / 1e9, 22.5, 0.2); }

// Every weight of a product meets every token once; both products of the attention have length x length x hidden
// multiply-adds a layer, however few heads the keys have.
TEST(ZooPublished, WorkOfLlama) {
  const double length = 16, hidden = 64, layers = 2, products = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96, head = 64 * 50;
  EXPECT_EQ(multiply_adds_of(model_of("llama?layers=2&hidden=64&heads=4&kv_heads=2&ffn=96&vocab=50&length=16").graph),
            length * (layers * products + head) + layers * 2 * length * length * hidden);
}

// As files have them: matrices [out, in], a scale of 2 bytes for 32 numbers, and the rest as it is. In f32 they are
// [in, out], which makes another network of the same seeds: what is stored in fewer bits is held against f16.
TEST(Zoo, MatricesCanBeStoredInFewerBits) {
  const std::string sizes = "llama?layers=2&hidden=64&heads=2&kv_heads=1&ffn=96&vocab=50&length=4";
  const Model plain = model_of(sizes);
  const auto outputs = [](const Model& model) {
    return evaluate(model.graph, model.weights, random_inputs(model.graph, 1)).value()[0].values;
  };
  const std::vector<float> wanted = outputs(model_of(sizes + "&weight_bits=16"));
  float largest = 0;
  for (const float value : wanted) largest = std::max(largest, std::abs(value));
  // Errors seen: 0.012 and 0.19 of the largest output.
  for (const auto& [bits, type, bytes, within] :
       {std::tuple{16, DType::f16, 2.0, 0.0}, std::tuple{8, DType::q8_0, 34.0 / 32, 0.03},
        std::tuple{4, DType::q4_0, 18.0 / 32, 0.4}}) {
    SCOPED_TRACE(bits);
    const Model model = model_of(fmt::format("{}&weight_bits={}", sizes, bits));
    EXPECT_EQ(parameter_count(model), parameter_count(plain));
    int matrices = 0;
    for (const Value& value : model.graph.values) {
      if (value.kind != ValueKind::weight || !value.name.ends_with("proj.weight")) continue;
      ++matrices;
      EXPECT_EQ(value.type.dtype, type) << value.name;
      EXPECT_EQ(static_cast<double>(size_of(value.type).value()),
                bytes * static_cast<double>(element_count(value.type.shape)));
    }
    EXPECT_EQ(matrices, 14);
    const std::vector<float> rounded = outputs(model);
    ASSERT_EQ(rounded.size(), wanted.size());
    float error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) error = std::max(error, std::abs(rounded[i] - wanted[i]));
    EXPECT_EQ(error > 0, bits < 16);
    EXPECT_LE(error / largest, within);
    std::cout << "ERR " << bits << " " << error / largest << "\n";
  }
}

TEST(Zoo, WhatChoosesExpertsStaysWhole) {
  const Model model = model_of(
      "qwen3_moe?layers=1&hidden=64&heads=2&kv_heads=1&head=32&ffn=32&experts=4&experts_used=2&vocab=50&weight_bits=4");
  std::map<std::string, DType> types;
  for (const Value& value : model.graph.values)
    if (value.kind == ValueKind::weight) types[value.name] = value.type.dtype;
  EXPECT_EQ(types.at("model.layers.0.mlp.gate.weight"), DType::f32);
  EXPECT_EQ(types.at("model.layers.0.mlp.experts.down_proj.weight"), DType::q4_0);
  EXPECT_EQ(types.at("model.layers.0.input_layernorm.weight"), DType::f32);
}

TEST(Zoo, ScalesAreOfWholeRows) {
  const auto error = [](std::string_view name) {
    const auto model = zoo_model(name);
    return model.ok() ? "accepted" : model.error().message;
  };
  EXPECT_THAT(error("llama?weight_bits=5"), HasSubstr("weight_bits 5 are none of 32, 16, 8 and 4"));
  EXPECT_THAT(error("llama?layers=1&ffn=100&weight_bits=8"), HasSubstr("ffn 100 is not a multiple of 32"));
  EXPECT_THAT(error("llama?layers=1&hidden=48&heads=2&kv_heads=1&weight_bits=4"),
              HasSubstr("hidden 48 is not a multiple of 32"));
  EXPECT_EQ(error("llama?layers=1&ffn=100&weight_bits=16"), "accepted");
}

TEST(Zoo, EveryModelIsValidAndReadsBack) {
  std::set<std::string_view> names;
  for (const ZooEntry& entry : zoo()) {
    SCOPED_TRACE(entry.name);
    EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_FALSE(entry.what.empty());
    const Model model = model_of(entry.name);
    EXPECT_TRUE(verify(model.graph).ok()) << verify(model.graph).error().to_string();
    EXPECT_EQ(model.graph.name, entry.name);
    for (const ValueId input : model.graph.inputs) EXPECT_EQ(model.graph.value(input).type.shape[0], 1);
    for (const ValueId output : model.graph.outputs) EXPECT_EQ(model.graph.value(output).type.shape[0], 1);
    EXPECT_EQ(model.weights.stored_bytes().value(), 0) << "weights are recipes until asked for";
    const auto parsed = parse_graph(to_string(model.graph), "zoo");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(*parsed, model.graph);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"simple_cnn", "mlp", "alexnet", "vgg16", "vgg19", "resnet18", "resnet50",
                                              "mobilenet_v2", "densenet121", "inception_v3", "efficientnet_b0",
                                              "vit_b16", "bert_base", "gpt2", "llama", "qwen3_moe"}));
}

TEST(Zoo, SizesThatMakeNoSenseAreListedTogether) {
  const auto error = [](std::string_view name) {
    const auto model = zoo_model(name);
    return model.ok() ? "accepted" : model.error().message;
  };
  EXPECT_THAT(error("llama?layer=2&heads=none&vocab=0&ffn"),
              AllOf(HasSubstr("there is no layer, did you mean layers?"), HasSubstr("heads \"none\" is not an integer"),
                    HasSubstr("vocab \"0\""), HasSubstr("\"ffn\" is not NAME=VALUE"),
                    HasSubstr("it takes layers=32 (decoder layers), hidden=4096")));
  EXPECT_THAT(error("llama?hidden=4098&kv_heads=5"), AllOf(HasSubstr("hidden 4098 is not a multiple of heads 32"),
                                                           HasSubstr("heads 32 is not a multiple of kv_heads 5")));
  EXPECT_THAT(error("llama?hidden=12&heads=4&kv_heads=4"), HasSubstr("a head's width of 3 is odd"));
  EXPECT_THAT(error("qwen3_moe?experts=4&experts_used=5"), HasSubstr("experts_used 5 is not from 1 to 4"));
  EXPECT_THAT(error("qwen3_moe?head=3"), HasSubstr("a head's width of 3 is odd"));
  EXPECT_THAT(error("qwen3_moe?experts=1000000"), HasSubstr("the experts of a layer would have 6.3e+12 elements"));
  EXPECT_THAT(error("llama?layers=2&layers=3"), HasSubstr("layers stands twice"));
  EXPECT_THAT(error("llama?"), HasSubstr("\"\" is not NAME=VALUE"));
  EXPECT_THAT(error("llama?length=9999999"), HasSubstr("the attention's scores would have"));
  EXPECT_THAT(error("bert_base?length=513"), HasSubstr("length 513 is more than 512"));
  EXPECT_THAT(error("vit_b16?image=100&patch=16"), HasSubstr("image 100 is not a multiple of patch 16"));
  EXPECT_THAT(error("inception_v3?image=74"), HasSubstr("image 74 is not from 75 to 4096"));
  EXPECT_THAT(error("vgg19?image=96"), AllOf(HasSubstr("there is no image"), HasSubstr("it takes no parameters")));
  for (const char* name : {"densenet121?image=29", "inception_v3?image=75", "resnet18?image=1", "mobilenet_v2?image=1",
                           "efficientnet_b0?image=1", "vit_b16?image=4096&patch=2048&hidden=2&heads=1",
                           "llama?length=1&layers=1", "gpt2?length=1024&layers=1"})
    EXPECT_EQ(error(name), "accepted") << name;
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
// two outputs. Not what is hidden from sight, nor the means of a normalisation, which are near one another.
void expect_lively(Model model) {
  const ValueId answer = model.graph.outputs[0];
  std::vector<ValueId> all;
  for (const Node& node : model.graph.nodes) {
    const bool apart = node.name.ends_with(".masked") || node.name.ends_with(".mean") ||
                       node.name.ends_with(".raised") || node.name.ends_with(".root");
    if (!apart) all.push_back(node.outputs[0]);
  }
  all.push_back(answer);
  model.graph.outputs = all;
  const auto first = evaluate(model.graph, model.weights, random_inputs(model.graph, 1));
  const auto second = evaluate(model.graph, model.weights, random_inputs(model.graph, 2));
  ASSERT_TRUE(first.ok()) << first.error().to_string();
  ASSERT_TRUE(second.ok()) << second.error().to_string();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_GT(deviation_of((*first)[i]), 0.03) << model.graph.value(all[i]).name;
    EXPECT_LT(deviation_of((*first)[i]), 30) << model.graph.value(all[i]).name;
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
TEST(ZooActivations, Densenet121) { expect_lively(build_densenet121(1, 64)); }
TEST(ZooActivations, InceptionV3) { expect_lively(build_inception_v3(1, 107)); }
TEST(ZooActivations, EfficientnetB0) { expect_lively(build_efficientnet_b0(1, 64)); }
TEST(ZooActivations, Vit) { expect_lively(model_of("vit_b16?layers=4&hidden=64&heads=4&ffn=128&image=64")); }
TEST(ZooActivations, Bert) {
  expect_lively(model_of("bert_base?layers=4&hidden=64&heads=4&ffn=128&vocab=100&length=12"));
}
TEST(ZooActivations, Gpt2) { expect_lively(model_of("gpt2?layers=4&hidden=64&heads=4&vocab=100&length=12")); }
TEST(ZooActivations, Llama) {
  expect_lively(model_of("llama?layers=4&hidden=64&heads=4&kv_heads=2&ffn=96&vocab=100&length=12"));
}

// A later token changes no earlier row of what a decoder says, and every row of an encoder's.
TEST(ZooActivations, DecodersDoNotLookAhead) {
  for (const auto& [name, ahead] : {std::pair{"gpt2?layers=2&hidden=32&heads=4&vocab=50&length=6", false},
                                    {"llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=48&vocab=50&length=6", false},
                                    {"bert_base?layers=2&hidden=32&heads=4&ffn=48&vocab=50&length=6", true}}) {
    SCOPED_TRACE(name);
    const Model model = model_of(name);
    std::vector<Tensor> inputs = random_inputs(model.graph, 1);
    const Tensor before = evaluate(model.graph, model.weights, inputs).value()[0];
    std::vector<int64_t> tokens = wholes_of(DType::i64, inputs[0].raw);
    tokens.back() = (tokens.back() + 1) % 50;
    inputs[0].raw = raw_of(DType::i64, std::span<const int64_t>(tokens));
    const Tensor after = evaluate(model.graph, model.weights, inputs).value()[0];
    const size_t row = before.values.size() / 6;
    for (size_t token = 0; token < 6; ++token) {
      const bool same = std::equal(before.values.begin() + static_cast<std::ptrdiff_t>(token * row),
                                   before.values.begin() + static_cast<std::ptrdiff_t>((token + 1) * row),
                                   after.values.begin() + static_cast<std::ptrdiff_t>(token * row));
      EXPECT_EQ(same, !ahead && token < 5) << "token " << token;
    }
  }
}

TEST(Zoo, SimpleCnnAsText) {
  EXPECT_EQ(to_string(model_of("simple_cnn").graph), R"(graph "simple_cnn"
input %input f32[1,3,8,8]
weight %conv1.weight f32[16,3,3,3] content f29c0798ce3f3eef
weight %conv1.bias f32[16] content 732f498698186c79
%conv1 f32[1,16,8,8] = Conv(%input, %conv1.weight, %conv1.bias) {pads=[1,1,1,1]} as "conv1"
%relu1 f32[1,16,8,8] = Relu(%conv1) as "relu1"
weight %conv2.weight f32[32,16,3,3] content 98401e62e10fa9c0
weight %conv2.bias f32[32] content ec74bb66512edfc0
%conv2 f32[1,32,8,8] = Conv(%relu1, %conv2.weight, %conv2.bias) {pads=[1,1,1,1]} as "conv2"
%relu2 f32[1,32,8,8] = Relu(%conv2) as "relu2"
%flatten f32[1,2048] = Flatten(%relu2) as "flatten"
weight %fc1.weight f32[128,2048] content c84c8257ef839d4f
weight %fc1.bias f32[128] content 4b4867efc40fdc9f
%fc1 f32[1,128] = Gemm(%flatten, %fc1.weight, %fc1.bias) {transB=1} as "fc1"
%relu3 f32[1,128] = Relu(%fc1) as "relu3"
weight %fc2.weight f32[10,128] content 9304e870bb946a6e
weight %fc2.bias f32[10] content 412602d1f328373e
%fc2 f32[1,10] = Gemm(%relu3, %fc2.weight, %fc2.bias) {transB=1} as "fc2"
output %fc2
)");
}

}  // namespace
}  // namespace nlsplit
