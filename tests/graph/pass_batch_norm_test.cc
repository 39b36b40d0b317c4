// BatchNormalization folded into what is in front of it or behind it: golden, and against the reference evaluator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/op_attrs.h"
#include "graph/pass_text.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using Ints = std::vector<int64_t>;

// A network of an input, and parameters that are random but for what is named.
struct RandomNetwork {
  explicit RandomNetwork(Shape input) : x(builder.input("x", {DType::f32, std::move(input)})) {}

  ValueId weight(Shape shape, float deviation, float mean = 0) {
    const TensorType type{DType::f32, std::move(shape)};
    const std::string name = fmt::format("w{}", builder.graph().values.size());
    return builder.weight(name, type,
                          weights.add_random(type, name.size() + builder.graph().values.size(), deviation, mean));
  }
  ValueId zeros(int64_t count) {
    const TensorType type{DType::f32, {count}};
    return builder.weight(fmt::format("w{}", builder.graph().values.size()), type, weights.add_fill(type, 0));
  }
  ValueId add(Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder.add(op, name, std::move(inputs), std::move(attrs)).value();
  }
  ValueId norm(ValueId in, bool shifts = true) {
    const int64_t channels = builder.type(in).shape[1];
    const ValueId scale = weight({channels}, 0.2f, 1);
    const ValueId bias = shifts ? weight({channels}, 0.5f) : zeros(channels);
    const ValueId mean = shifts ? weight({channels}, 0.5f) : zeros(channels);
    return add(Op::BatchNormalization, "norm", {in, scale, bias, mean, weight({channels}, 0.1f, 1)},
               {{"epsilon", 1e-3}});
  }

  // The pass makes `nodes` of it, and what it computes stays.
  void expect_after(std::string_view name, ValueId output, size_t nodes) {
    builder.output(output);
    const Graph graph = std::move(builder).finish();
    const Graph passed = pass(name).run(graph, weights).value();
    ASSERT_TRUE(verify(passed).ok()) << verify(passed).error().to_string();
    EXPECT_EQ(passed.nodes.size(), nodes) << to_string(passed);
    const std::vector<Tensor> inputs = random_inputs(graph, 5);
    const auto before = evaluate(graph, weights, inputs), after = evaluate(passed, weights, inputs);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_GT(deviation_of(before->at(0)), 0.05);
    expect_close(*after, *before, {2e-6, 2e-6});
  }

  GraphBuilder builder{"g"};
  WeightStore weights;
  ValueId x;
};

Attrs gemm(double alpha, double beta, int64_t transposed) {
  return {{"alpha", alpha}, {"beta", beta}, {"transA", int64_t{0}}, {"transB", transposed}};
}

TEST(FoldBatchNorm, IntoATransposedConvolution) {
  for (const int64_t group : {1, 2}) {
    RandomNetwork net({2, 4, 5, 5});
    Attrs attrs = conv({3, 2}, {1, 1}, {1, 0, 0, 1}, group);
    set_attr(attrs, "output_padding", Ints{0, 0});
    const ValueId y =
        net.add(Op::ConvTranspose, "up", {net.x, net.weight({4, 3, 3, 2}, 0.3f), net.weight({3 * group}, 1)}, attrs);
    net.expect_after("fold_batch_norm", net.norm(y), 1);
  }
}

TEST(FoldBatchNorm, IntoAGemmEitherWayRound) {
  for (const int64_t transposed : {0, 1}) {
    for (const bool biased : {false, true}) {
      RandomNetwork net({3, 7});
      std::vector<ValueId> inputs{net.x, net.weight(transposed ? Shape{5, 7} : Shape{7, 5}, 0.4f)};
      if (biased) inputs.push_back(net.weight({5}, 1));
      const ValueId y = net.add(Op::Gemm, "fc", inputs, gemm(1, biased ? 1 : 0.5, transposed));
      net.expect_after("fold_batch_norm", net.norm(y), 1);
    }
  }
}

TEST(FoldBatchNorm, NotIntoAGemmThatScales) {
  for (const auto& [alpha, beta] : {std::pair{2.0, 1.0}, std::pair{1.0, 0.5}}) {
    RandomNetwork net({3, 7});
    const ValueId y =
        net.add(Op::Gemm, "fc", {net.x, net.weight({7, 5}, 0.4f), net.weight({5}, 1)}, gemm(alpha, beta, 0));
    net.expect_after("fold_batch_norm", net.norm(y), 2);
  }
}

constexpr std::string_view ahead = R"(graph "g"
input %x f32[1,4,3,3]
weight %scale f32[4] content 2
weight %bias f32[4] content 3
weight %mean f32[4] content 4
weight %var f32[4] content 5
%a f32[1,4,3,3] = BatchNormalization(%x, %scale, %bias, %mean, %var) {epsilon=0.001} as "norm"
weight %w f32[6,2,1,1] content 1
%b f32[1,6,3,3] = Conv(%a, %w) {dilations=[1,1], group=2, kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1]} as "conv"
output %b
)";

TEST(FoldBatchNormAhead, IntoTheConvBehind) {
  EXPECT_EQ(after("fold_batch_norm_ahead", ahead), R"(graph "g"
input %x f32[1,4,3,3]
weight %norm.folded_weight f32[6,2,1,1]
weight %norm.folded_bias f32[6]
%b f32[1,6,3,3] = Conv(%x, %norm.folded_weight, %norm.folded_bias) {group=2} as "conv"
output %b
)");
}

TEST(FoldBatchNormAhead, OnlyWhereNobodyElseReadsTheNorm) {
  const std::string twice = std::string(ahead) + "output %a\n";
  EXPECT_EQ(after("fold_batch_norm_ahead", twice), without_contents(to_string(parse(twice))));
}

TEST(FoldBatchNormAhead, KeepsWhatIsComputed) {
  for (const int64_t group : {1, 2, 4}) {
    for (const bool biased : {false, true}) {
      RandomNetwork net({2, 4, 6, 5});
      const ValueId in = net.norm(net.x);
      std::vector<ValueId> inputs{in, net.weight({8, 4 / group, 3, 2}, 0.3f)};
      if (biased) inputs.push_back(net.weight({8}, 1));
      net.expect_after("fold_batch_norm_ahead",
                       net.add(Op::Conv, "conv", inputs, conv({3, 2}, {1, 1}, {0, 0, 0, 0}, group)), 1);
    }
  }
}

// A zero behind the norm is not one in front of it.
TEST(FoldBatchNormAhead, UnderPaddingOnlyWithoutAShift) {
  for (const bool shifts : {false, true}) {
    RandomNetwork net({2, 4, 6, 5});
    const ValueId y = net.add(Op::Conv, "conv", {net.norm(net.x, shifts), net.weight({8, 4, 3, 3}, 0.3f)},
                              conv({3, 3}, {1, 1}, {1, 1, 1, 1}));
    net.expect_after("fold_batch_norm_ahead", y, shifts ? 2 : 1);
  }
}

}  // namespace
}  // namespace nlsplit
