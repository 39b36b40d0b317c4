#include "kernels/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/ops.h"
#include "kernels/random_desc.h"

namespace nlsplit {
namespace {

// Whatever operator, shapes, layouts, attributes and epilogue.
TEST(Signature, ParsesBack) {
  Random random(11);
  int tried = 0;
  for (int op = 0; op < op_count; ++op) {
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
