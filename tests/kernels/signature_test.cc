#include "kernels/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/operators/operator.h"
#include "kernels/gradient.h"
#include "kernels/random_desc.h"

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
      if (draw % 2 == 0) desc->kernel = "some_kernel_v3";
      if (draw % 4 == 0 && desc->outputs[0].shape.size() == 4) desc->outputs[0].block = 8;
      const auto parsed = parse_signature(signature(*desc));
      ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
      ASSERT_EQ(*parsed, *desc) << signature(*desc);
      ++tried;
    }
  }
  EXPECT_GT(tried, 500);
}

TEST(Signature, GradientsAndUpdatesParseBack) {
  ComputeDesc forward;
  forward.kernel = "matmul_v3";
  forward.op = Op::MatMul;
  forward.weights = 2;
  forward.inputs = {{DType::f32, {2, 4}}, {DType::f32, {4, 3}}};
  forward.outputs = {{DType::f32, {2, 3}}};
  const ComputeDesc gradient = gradient_desc(forward, 3);
  EXPECT_EQ(signature(gradient), "gradient MatMul(by f32[2,4], by f32[4,3]) -> f32[2,3]");
  EXPECT_EQ(signature(gradient_desc(forward, 2)), "gradient MatMul(f32[2,4], by f32[4,3]) -> f32[2,3]");
  EXPECT_EQ(signature(update_desc(Optimizer::adam, {DType::f32, {4}})),
            "adam Identity(f32[4], f32[4], f32[4], f32[4]) -> f32[4] f32[4] f32[4]");
  for (const ComputeDesc& desc :
       {gradient, gradient_desc(forward, 1), update_desc(Optimizer::sgd, {DType::f32, {4}})}) {
    const auto parsed = parse_signature(signature(desc));
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(*parsed, desc);
  }
}

TEST(GradientDesc, WhatItReadsAndWritesAndWhatIsRefused) {
  ComputeDesc forward;
  forward.op = Op::MatMul;
  forward.inputs = {{DType::f32, {2, 4}}, {DType::f32, {4, 3}}};
  forward.outputs = {{DType::f32, {2, 3}}};
  const GradientOperands operands = gradient_operands(gradient_desc(forward, 2));
  ASSERT_EQ(operands.reads.size(), 2u);  // the result's gradient, then the other factor
  EXPECT_EQ(operands.reads[0], forward.outputs[0]);
  EXPECT_EQ(operands.reads[1], forward.inputs[0]);
  EXPECT_EQ(operands.writes, std::vector<TensorType>{forward.inputs[1]});
  EXPECT_TRUE(verify_gradient(gradient_desc(forward, 2)).ok());
  EXPECT_THAT(verify_gradient(gradient_desc(forward, 4)).error().message, ::testing::HasSubstr("more inputs than"));
  ComputeDesc wrong = gradient_desc(forward, 1);
  wrong.outputs[0].shape = {2, 5};
  EXPECT_THAT(verify_gradient(wrong).error().message, ::testing::HasSubstr("results of other types"));
  ComputeDesc fused = gradient_desc(forward, 1);
  fused.epilogue.push_back({Op::Relu, {}});
  EXPECT_THAT(verify_gradient(fused).error().message, ::testing::HasSubstr("several steps at once"));
  ComputeDesc sum = forward;
  sum.op = Op::Add;
  sum.inputs = {forward.outputs[0], forward.outputs[0]};
  EXPECT_THAT(verify_gradient(gradient_desc(sum, 3)).error().message, ::testing::HasSubstr("nothing to compute"));
  ComputeDesc update = update_desc(Optimizer::momentum, {DType::f32, {4}});
  EXPECT_TRUE(verify_update(update).ok());
  update.inputs.pop_back();
  EXPECT_THAT(verify_update(update).error().message,
              ::testing::HasSubstr("momentum reads a weight, its gradient and 1"));
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
    EXPECT_THAT(parsed.error().message, ::testing::StartsWith("this is no signature of a computation: "));
  }
}

}  // namespace
}  // namespace nlsplit
