// nlsim show: costs, memory and drawing of a network, and the memory of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/onnx/export.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Show : public ::testing::Test {
 protected:
  json answer(const std::string& arguments) {
    const Outcome outcome = nlsim("show " + arguments + " --json -");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
};

TEST_F(Show, CostsOfEveryLayer) {
  const json costs = answer("zoo:simple_cnn --costs");
  EXPECT_EQ(costs.at("format"), "nlsplit-costs");
  const json& conv = costs.at("layers").at(0);
  EXPECT_EQ(conv.at("name"), "conv1");
  EXPECT_EQ(conv.at("operator"), "Conv");
  EXPECT_EQ(conv.at("result"), "f32[1,16,8,8]");
  // 3x3 of 3 channels for each of 16 * 64 results; the image, the weights and the bias in, the result out.
  constexpr double flops = 2 * 27 * 16 * 64;
  constexpr int read = 4 * (3 * 64 + 16 * 27 + 16), written = 4 * 16 * 64;
  EXPECT_EQ(conv.at("flops"), flops);
  EXPECT_EQ(conv.at("bytes_read"), read);
  EXPECT_EQ(conv.at("bytes_written"), written);
  EXPECT_DOUBLE_EQ(conv.at("flops_per_byte").get<double>(), flops / (read + written));
  double of_flops = 0, of_bytes = 0, sum = 0;
  for (const json& layer : costs.at("layers")) {
    EXPECT_NE(layer.at("name"), "flatten") << "a view costs nothing";
    of_flops += layer.at("share_of_flops").get<double>();
    of_bytes += layer.at("share_of_bytes").get<double>();
    sum += layer.at("flops").get<double>();
  }
  EXPECT_NEAR(of_flops, 1, 1e-9);
  EXPECT_NEAR(of_bytes, 1, 1e-9);
  EXPECT_DOUBLE_EQ(sum, costs.at("all").at("flops").get<double>());
  EXPECT_DOUBLE_EQ(conv.at("share_of_flops").get<double>(), flops / sum);
}

// All tensors but the image and the result, which stay float32 and are cast.
TEST_F(Show, PrecisionHalvesTheBytes) {
  const json plain = answer("zoo:simple_cnn --costs"), half = answer("zoo:simple_cnn --costs --precision float16");
  const json &before = plain.at("layers").at(0), &after = half.at("layers").at(1);
  EXPECT_EQ(half.at("layers").at(0).at("operator"), "Cast");
  EXPECT_EQ(after.at("name"), "conv1");
  EXPECT_EQ(after.at("result"), "f16[1,16,8,8]");
  EXPECT_EQ(after.at("flops"), before.at("flops"));
  EXPECT_EQ(2 * after.at("bytes_read").get<int64_t>(), before.at("bytes_read").get<int64_t>());
  EXPECT_EQ(2 * after.at("bytes_written").get<int64_t>(), before.at("bytes_written").get<int64_t>());
  EXPECT_THAT(nlsim("show zoo:simple_cnn --fused --precision bfloat16").out, HasSubstr("bf16[1,16,8,8] = Conv"));
}

TEST_F(Show, LossAndGradientsBehindTheNetwork) {
  const Outcome shown = nlsim("show zoo:simple_cnn --differentiate softmax_cross_entropy");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const auto graph = parse_graph(shown.out, "shown");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_EQ(graph->outputs.size(), 1u + 8u) << "the loss, and a gradient for each weight and bias";
  EXPECT_THAT(shown.out, HasSubstr("%d.conv2.0 f32[1,16,8,8] = ConvTranspose(%d.relu2.0, %conv2.weight)"));
  const Outcome odd = nlsim("show zoo:simple_cnn --differentiate hinge");
  EXPECT_EQ(odd.code, 2);
  EXPECT_THAT(odd.err, HasSubstr("'hinge' is not a loss"));
  EXPECT_EQ(nlsim("show zoo:simple_cnn --fused --differentiate mean_squared_error").code, 2);
}

TEST_F(Show, CostsAsATable) {
  const Outcome plain = nlsim("show zoo:simple_cnn --costs"), fused = nlsim("show zoo:simple_cnn --costs --fused");
  ASSERT_EQ(plain.code, 0) << plain.err;
  for (const char* part : {"simple_cnn", "layer", "operator", "FLOP/B", "conv2", "55.3 kFLOP", "100.0 %"})
    EXPECT_THAT(plain.out, HasSubstr(part));
  EXPECT_THAT(fused.out, HasSubstr("conv1, relu1"));
  EXPECT_THAT(fused.out, HasSubstr("Conv+Relu"));
  const std::string file = scratch_ / "costs.json";
  EXPECT_EQ(nlsim("show zoo:simple_cnn --costs --json " + file).out, plain.out) << "the table too";
  EXPECT_EQ(json::parse(value_of(read_file(file))), answer("zoo:simple_cnn --costs"));
}

// What --memory says, what the Program says, and what a run allocates.
TEST_F(Show, MemoryIsWhatARunAllocates) {
  const auto expect_allocated = [&](const json& memory, const std::string& what, const std::string& name) {
    const std::string folder = scratch_ / name, figures = folder + ".json";
    ASSERT_EQ(nlsim("lower " + what + " --save " + folder).code, 0);
    const Outcome run =
        nlbench(fmt::format("run {} --transport threads --repeats 1 --warmup 0 --json {}", folder, figures));
    ASSERT_EQ(run.code, 0) << run.err;
    const json devices = json::parse(value_of(read_file(figures))).at("devices");
    ASSERT_EQ(devices.size(), memory.at("devices").size());
    for (size_t d = 0; d < devices.size(); ++d) {
      const json& device = memory.at("devices").at(d);
      EXPECT_EQ(device.at("name"), devices[d].at("name"));
      EXPECT_EQ(device.at("arena_bytes"), devices[d].at("arena_bytes"));
      int64_t parts = 0;
      for (const char* part :
           {"weights", "states", "activations", "workspace", "messages", "stash", "inputs", "outputs"})
        parts += device.at(fmt::format("{}_bytes", part)).get<int64_t>();
      EXPECT_EQ(parts, device.at("arena_bytes").get<int64_t>());
      for (const json& stage : device.at("stages")) {
        EXPECT_LE(stage.at("bound_bytes"), stage.at("activations_bytes"));
        EXPECT_LE(stage.at("activations_bytes"), device.at("activations_bytes"));
        EXPECT_LE(stage.at("weights_bytes"), device.at("weights_bytes"));
      }
    }
  };
  const json model = answer("zoo:simple_cnn --memory");
  EXPECT_EQ(model.at("format"), "nlsplit-memory");
  // The second convolution's result, 32 x 64 floats, beside what it is made of or made into.
  const json& stage = model.at("devices").at(0).at("stages").at(0);
  EXPECT_GE(stage.at("bound_bytes"), 4 * (32 + 16) * 64);
  EXPECT_THAT(stage.at("most_at").get<std::string>(), HasSubstr("relu2"));
  expect_allocated(model, "zoo:simple_cnn", "model");
  const json plan = answer(scenario_ + " --memory --plan mine");
  EXPECT_EQ(plan.at("devices").size(), 3u);
  EXPECT_GT(plan.at("devices").at(1).at("messages_bytes"), 0);
  EXPECT_EQ(plan.at("devices").at(1).at("stages").at(0).at("stage"), 1);
  expect_allocated(plan, scenario_ + " --plan mine", "plan");
}

TEST_F(Show, MemoryAsATable) {
  const Outcome model = nlsim("show zoo:simple_cnn --memory --isa v2 --batch 2");
  ASSERT_EQ(model.code, 0) << model.err;
  for (const char* part : {"simple_cnn unsplit, kernels of level v2, batch 2", "of weights in the model", "activations",
                           "bound", "most at", "relu2", "arena"})
    EXPECT_THAT(model.out, HasSubstr(part));
  EXPECT_THAT(model.out, Not(HasSubstr("messages"))) << "there are none";
  const Outcome plan = nlsim("show " + scenario_ + " --memory --plan mine");
  ASSERT_EQ(plan.code, 0) << plan.err;
  for (const char* part : {"..relu1", "messages", "in, out"}) EXPECT_THAT(plan.out, HasSubstr(part));
}

TEST_F(Show, ADrawing) {
  const Outcome drawing = nlsim("show zoo:simple_cnn --dot --fused");
  ASSERT_EQ(drawing.code, 0) << drawing.err;
  EXPECT_THAT(drawing.out, StartsWith("digraph \"simple_cnn\" {\n"));
  EXPECT_THAT(drawing.out, HasSubstr("label=\"conv1, relu1\\nConv + Relu\\n"));
}

TEST_F(Show, TheCodeOfAGeneratedKernel) {
  GraphBuilder builder("small");
  const ValueId x = builder.input("x", {DType::f32, {1, 8, 100}});
  builder.output(value_of(builder.add(Op::Floor, "down", {x}, {})));
  const std::string model = scratch_ / "small.onnx";
  ASSERT_TRUE(export_onnx(std::move(builder).finish(), WeightStore(), model).ok());
  const Outcome unknown = nlsim("show " + model + " --code dawn");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("is called 'dawn', did you mean 'down'?; generated kernels: down"));
  const Outcome made = nlsim("show zoo:simple_cnn --code conv1 --isa v2");
  EXPECT_EQ(made.code, 2);
  EXPECT_THAT(made.err, HasSubstr("computes 'conv1, relu1': code that nlsplit was built with"));
  const Outcome cuda = nlsim("show " + model + " --code down --isa cuda");
  ASSERT_EQ(cuda.code, 0) << cuda.err;
  for (const char* part : {"generated_cuda Floor(f32[1,8,100])", "for i0 < 800", "# CUDA C", "floorf(",
                           "__global__ void generated(const float* __restrict__ in0, float* __restrict__ out)"})
    EXPECT_THAT(cuda.out, HasSubstr(part));
#ifndef NLS_LLVM
  GTEST_SKIP() << "built without LLVM";
#endif
  const Outcome code = nlsim("show " + model + " --code down --isa v2");
  ASSERT_EQ(code.code, 0) << code.err;
  for (const char* part : {"generated_v2 Floor(f32[1,8,100])", "for i0 < 800", "define", "llvm.floor", "\tret"})
    EXPECT_THAT(code.out, HasSubstr(part));
}

TEST_F(Show, WhatDoesNotGoTogetherIsRefused) {
  for (const std::string& arguments :
       {std::string("zoo:simple_cnn --json -"), scenario_, scenario_ + " --costs",
        std::string("zoo:simple_cnn --costs --memory"), std::string("zoo:simple_cnn --costs --dot"),
        std::string("zoo:simple_cnn --memory --fused"), std::string("zoo:simple_cnn --memory --plan 1"),
        std::string("zoo:simple_cnn --isa v2"), std::string("zoo:simple_cnn --memory --isa v9"),
        scenario_ + " --memory --isa v2", std::string("zoo:simple_cnn --code conv1 --costs"),
        scenario_ + " --code conv1", scenario_ + " --memory --batch 4", scenario_ + " --memory --plan nobody"}) {
    const Outcome outcome = nlsim("show " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.out;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

}  // namespace
}  // namespace nlsplit
