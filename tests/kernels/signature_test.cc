#include "kernels/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/operators/operator.h"
#include "kernels/random_desc.h"
#include "kernels/without_kernel.h"

namespace nlsplit {
namespace {

// Whatever operator, shapes, layouts, attributes and epilogue.
TEST(Signature, ParsesBack) {
  Random random(11);
  int tried = 0;
  for (int op = 0; op < op_count; ++op) {
    if (!has(static_cast<Op>(op), traits::has_kernels)) continue;
    for (int draw = 0; draw < 40; ++draw) {
      auto desc = testing::RandomDesc(static_cast<Op>(op), random).draw();
      if (!desc || desc->inputs.empty()) continue;
      desc->weights = random.below(uint64_t{1} << std::min<size_t>(desc->inputs.size(), 8));
      if (draw % 2 == 0) desc->kernel = {KernelName::conv_1x1, Isa::v3};
      if (draw % 4 == 0 && desc->outputs[0].shape.size() == 4) desc->outputs[0].block = 8;
      const auto parsed = parse_signature(signature(*desc));
      ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
      ASSERT_EQ(*parsed, *desc) << signature(*desc);
      ++tried;
    }
  }
  EXPECT_GT(tried, 500);
}

ComputeDesc relu_gradient() {
  ComputeDesc desc;
  desc.kernel = KernelName::none;
  desc.op = Op::ReluGradient;
  desc.inputs = {{DType::f32, {2, 3}}, {DType::f32, {2, 3}}};
  desc.outputs = {{DType::f32, {2, 3}}};
  return desc;
}

TEST(Signature, WhatHasNoKernelParsesBack) {
  EXPECT_EQ(signature(relu_gradient()), "none ReluGradient(f32[2,3], f32[2,3]) -> f32[2,3]");
  const auto parsed = parse_signature(signature(relu_gradient()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  EXPECT_EQ(*parsed, relu_gradient());
}

TEST(WithoutKernel, WhatIsRefused) {
  const auto refusal = [](const std::function<void(ComputeDesc&)>& change) {
    ComputeDesc desc = relu_gradient();
    change(desc);
    const Status status = verify_without_kernel(desc);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal([](ComputeDesc&) {}), "");
  EXPECT_THAT(refusal([](ComputeDesc& desc) {
                desc.outputs[0].shape = {2, 5};
              }),
              ::testing::HasSubstr("results of other types"));
  EXPECT_THAT(refusal([](ComputeDesc& desc) { desc.inputs.pop_back(); }), ::testing::HasSubstr("ReluGradient"));
  EXPECT_THAT(refusal([](ComputeDesc& desc) { desc.weights = 4; }), ::testing::HasSubstr("more weights than inputs"));
  EXPECT_THAT(refusal([](ComputeDesc& desc) {
                desc.epilogue.push_back({Op::Relu, {}});
              }),
              ::testing::HasSubstr("several steps at once"));
  EXPECT_THAT(refusal([](ComputeDesc& desc) {
                desc.inputs[1] = {DType::f32, {2, 8, 1, 1}, 8};
              }),
              ::testing::HasSubstr("is not row-major"));
  EXPECT_THAT(refusal([](ComputeDesc& desc) {
                desc.op = Op::Flatten;
                desc.inputs.pop_back();
                desc.attrs = {{"axis", int64_t{1}}};
              }),
              ::testing::HasSubstr("a view computes nothing"));
}

TEST(Signature, OtherTextsAreRefused) {
  for (const std::string text :
       {"", "(", ")(", "Relu", "Relu()", "Relu(f32[4])", "Relu(f32[4]) -> ", "Relu(f32[4]) -> f32",
        "Wish(f32[4]) -> f32[4]", "Relu(f32[4]) -> f32[4]\n", "Relu(f32[4])-> f32[4]", "Relu(f32[4]) {axis=} -> f32[4]",
        "Relu(f32[4]) # -> f32[4]", "Relu(f32[4]) + -> f32[4]", "Relu(f32[4]) + Wish -> f32[4]",
        "Relu(f32[999999999999999]) -> f32[4]", "Relu(f32[4],f32[4]) -> f32[4]", "a b Relu(f32[4]) -> f32[4]"}) {
    const auto parsed = parse_signature(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().fragment, text);
    EXPECT_THAT(parsed.error().message, ::testing::StartsWith("this is not a signature of a computation: "));
  }
}

}  // namespace
}  // namespace nlsplit
