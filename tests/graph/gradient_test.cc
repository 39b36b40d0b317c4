// Nodes that make gradients: their arithmetic and what they keep of the forward pass, against sums done by hand.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "graph/builder.h"
#include "graph/differentiate/differentiate.h"
#include "graph/op_attrs.h"
#include "graph/operators/operator.h"
#include "graph/optimizer.h"
#include "testing/types.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

struct GradientCase {
  Op op;
  std::vector<TensorType> inputs;
  Attrs attrs = {};
};

// "flops F keeps 0 1 y": the inputs that the nodes behind the operator's gradient read, and its result. The operands in
// `by` are trained, the others are given; the loss is a weighted sum of the results.
std::string gradient(const GradientCase& one, uint64_t by) {
  GraphBuilder builder("one");
  WeightStore weights;
  std::vector<ValueId> operands, trained;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    if ((by >> i & 1) != 0) {
      operands.push_back(builder.weight(fmt::format("w{}", i), one.inputs[i], {i + 1}));
      trained.push_back(operands.back());
    } else {
      operands.push_back(builder.input(fmt::format("x{}", i), one.inputs[i]));
    }
  }
  const ValueId y = builder.add(one.op, "it", operands, one.attrs).value();
  const TensorType type = builder.type(y);
  const ValueId weighted = builder.add(Op::Mul, "weighted", {y, builder.input("of", type)}, {}).value();
  Ints axes(type.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const ValueId loss =
      builder.add(Op::ReduceSum, "loss", {weighted}, {{"axes", axes}, {"keepdims", int64_t{0}}}).value();
  builder.output(loss);
  const auto made = differentiate(std::move(builder).finish(), loss, trained, weights);
  if (!made) return made.error().message;
  double sum = 0;
  std::set<ValueId> read;
  for (size_t n = 0; n < made->graph.nodes.size(); ++n) {
    if (made->origins[n] != 0 || made->phases[n] == NodePhase::forward) continue;
    sum += work_of(made->graph, made->graph.nodes[n]).flops.value();
    read.insert(made->graph.nodes[n].inputs.begin(), made->graph.nodes[n].inputs.end());
  }
  std::string text = fmt::format("flops {} keeps", sum);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (read.contains(operands[i])) text += fmt::format(" {}", i);
  }
  return read.contains(y) ? text + " y" : text;
}

constexpr uint64_t first = 1, second = 2, third = 4;

Attrs pool(Ints kernel, bool average) {
  Attrs attrs{{"ceil_mode", int64_t{0}}, {"kernel_shape", kernel}, {"pads", Ints{0, 0, 0, 0}}, {"strides", kernel}};
  if (average)
    set_attr(attrs, "count_include_pad", int64_t{0});
  else
    set_attr(attrs, "dilations", Ints{1, 1});
  return attrs;
}
Attrs gemm() { return {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}}; }

TEST(Gradient, OfAConvolutionIsTwoConvolutionsAndASum) {
  // x 2x3x8x8, 16 filters of 3x3, y 2x16x8x8 = 2048 elements; each meets 27 taps: 2 x 27 x 2048 = 110592 operations,
  // both by x and by w. x 384, w 432, y 2048 elements of 4 bytes.
  const GradientCase c{
      Op::Conv, {f32({2, 3, 8, 8}), f32({16, 3, 3, 3}), f32({16})}, conv({3, 3}, {1, 1}, {1, 1, 1, 1})};
  EXPECT_EQ(gradient(c, first), "flops 110592 keeps 1");   // dy 8192 + w 1728
  EXPECT_EQ(gradient(c, second), "flops 110592 keeps 0");  // dy + x 1536
  EXPECT_EQ(gradient(c, third), "flops 2048 keeps");       // the bias: dy is summed
  EXPECT_EQ(gradient(c, second | third), "flops 112640 keeps 0");
  // As much as the forward pass, whose work is known to be right (ops_test.cc).
  const auto outputs = info(c.op).infer(c.inputs, c.attrs).value();
  EXPECT_EQ(work_of(c.op, c.attrs, {}, c.inputs, outputs).flops.value(), 110592);
}

TEST(Gradient, OfADepthwiseConvolutionCountsItsOneChannel) {
  // y 1x4x6x6 = 144 elements, 9 taps each: 2 x 9 x 144 = 2592.
  const GradientCase c{Op::Conv, {f32({1, 4, 6, 6}), f32({4, 1, 3, 3})}, conv({3, 3}, {1, 1}, {1, 1, 1, 1}, 4)};
  EXPECT_EQ(gradient(c, first), "flops 2592 keeps 1");
  EXPECT_EQ(gradient(c, second), "flops 2592 keeps 0");
}

TEST(Gradient, OfATransposedConvolution) {
  // x 1x2x3x3 = 18 elements, each meets w[its channel] = 5x2x2 = 20 weights: 2 x 20 x 18 = 720. y 1x5x6x6 = 180.
  Attrs attrs = conv({2, 2}, {2, 2}, {0, 0, 0, 0});
  set_attr(attrs, "output_padding", Ints{0, 0});
  const GradientCase c{Op::ConvTranspose, {f32({1, 2, 3, 3}), f32({2, 5, 2, 2}), f32({5})}, attrs};
  EXPECT_EQ(gradient(c, first), "flops 720 keeps 1");           // dy 720 + w 160
  EXPECT_EQ(gradient(c, second | third), "flops 900 keeps 0");  // + 180 for the bias
}

TEST(Gradient, OfProducts) {
  // 2x4 by 4x5: y 2x5; 2 x 4 x 10 = 80 operations each way. The bias gets sums of 10 numbers.
  const GradientCase g{Op::Gemm, {f32({2, 4}), f32({4, 5}), f32({5})}, gemm()};
  EXPECT_EQ(gradient(g, first), "flops 80 keeps 1");           // dy 40 + w 80
  EXPECT_EQ(gradient(g, second | third), "flops 90 keeps 0");  // dy 40 + x 32
  // Attention: both are activations. 3 heads of 2x4 by 4x2: y 3x2x2 = 12, 2 x 4 x 12 = 96 each.
  const GradientCase m{Op::MatMul, {f32({3, 2, 4}), f32({3, 4, 2})}};
  EXPECT_EQ(gradient(m, first | second), "flops 192 keeps 0 1");
  // One matrix for all: the same arithmetic, its sums go on over the batch.
  const GradientCase w{Op::MatMul, {f32({3, 2, 4}), f32({4, 2})}};
  EXPECT_EQ(gradient(w, second), "flops 96 keeps 0");
  const GradientCase b{Op::MatMul, {f32({3, 2, 4}), f32({4, 2}), f32({2})}};
  EXPECT_EQ(gradient(b, third), "flops 12 keeps");
}

TEST(Gradient, OfSumsPassesUnlessItWasBroadcast) {
  const std::vector<TensorType> same{f32({2, 3}), f32({2, 3})}, row{f32({2, 3}), f32({3})};
  EXPECT_EQ(gradient({Op::Add, same}, first | second), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Sum, same}, first | second), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Add, row}, second), "flops 6 keeps");
  EXPECT_EQ(gradient({Op::Sub, same}, first | second), "flops 6 keeps");  // db = -dy
  EXPECT_EQ(gradient({Op::Sub, row}, second), "flops 9 keeps");
}

TEST(Gradient, OfAProductOfElementsKeepsTheOther) {
  const std::vector<TensorType> same{f32({2, 3}), f32({2, 3})}, row{f32({2, 3}), f32({3})};
  EXPECT_EQ(gradient({Op::Mul, same}, first), "flops 6 keeps 1");
  EXPECT_EQ(gradient({Op::Mul, same}, first | second), "flops 12 keeps 0 1");
  EXPECT_EQ(gradient({Op::Mul, row}, second), "flops 12 keeps 0");  // 6 products, 6 additions
  EXPECT_EQ(gradient({Op::Div, same}, first), "flops 6 keeps 1");
  EXPECT_EQ(gradient({Op::Div, same}, second), "flops 18 keeps 1 y");  // dy y / b, its sign
}

TEST(Gradient, OfFunctionsReadsWhatTheDerivativeNeeds) {
  const auto of = [](Op op, const Attrs& attrs = {}) { return gradient({op, {f32({10})}, attrs}, first); };
  EXPECT_EQ(of(Op::Relu), "flops 10 keeps y");
  EXPECT_EQ(of(Op::Sigmoid), "flops 30 keeps y");
  EXPECT_EQ(of(Op::Tanh), "flops 30 keeps y");
  EXPECT_EQ(of(Op::HardSwish), "flops 30 keeps 0");
  EXPECT_EQ(of(Op::Exp), "flops 10 keeps y");
  EXPECT_EQ(of(Op::Sqrt), "flops 20 keeps y");
  EXPECT_EQ(of(Op::Neg), "flops 10 keeps");
  EXPECT_EQ(of(Op::Erf), "flops 50 keeps 0");
  EXPECT_EQ(of(Op::Gelu, {{"approximate", std::string("none")}}), "flops 110 keeps 0");
  EXPECT_EQ(of(Op::Gelu, {{"approximate", std::string("tanh")}}), "flops 160 keeps 0");
  EXPECT_EQ(of(Op::LeakyRelu, {{"alpha", 0.1}}), "flops 10 keeps y");
  EXPECT_EQ(of(Op::LeakyRelu, {{"alpha", -0.1}}), "flops 10 keeps 0");  // y > 0 on both sides
  EXPECT_EQ(of(Op::HardSigmoid, {{"alpha", 0.2}, {"beta", 0.5}}), "flops 10 keeps y");
  EXPECT_EQ(of(Op::Clip, {{"max", 6.0}, {"min", 0.0}}), "flops 10 keeps y");
  EXPECT_EQ(of(Op::Atan), "flops 30 keeps 0");
  EXPECT_EQ(of(Op::Asin), "flops 50 keeps 0");
  EXPECT_EQ(of(Op::Tan), "flops 30 keeps y");
  EXPECT_EQ(of(Op::Softsign), "flops 40 keeps 0");
  EXPECT_EQ(of(Op::Mish), "flops 100 keeps 0");
  EXPECT_EQ(of(Op::Elu, {{"alpha", 0.5}}), "flops 40 keeps 0");
  EXPECT_EQ(of(Op::Shrink, {{"bias", 0.0}, {"lambd", 0.5}}), "flops 20 keeps 0");
}

TEST(Gradient, OfWhatIsTakenOut) {
  // 6 rows of 4 from a table of 10: an addition for each of 24 elements; the gradient is as large as the table.
  const GradientCase rows{Op::Gather, {f32({10, 4}), {DType::i64, {2, 3}}}, {{"axis", int64_t{0}}}};
  EXPECT_EQ(gradient(rows, first), "flops 24 keeps 1");
  EXPECT_THAT(gradient(rows, second), HasSubstr("only floats have gradients"));
  const GradientCase slice{
      Op::Slice, {f32({4, 6})}, {{"axes", Ints{1}}, {"ends", Ints{5}}, {"starts", Ints{1}}, {"steps", Ints{1}}}};
  EXPECT_EQ(gradient(slice, first), "flops 0 keeps");
}

TEST(Gradient, OfPooling) {
  const std::vector<TensorType> x{f32({1, 2, 4, 4})};  // 32 elements; y 1x2x2x2 = 8 of 4 taps
  EXPECT_EQ(gradient({Op::MaxPool, x, pool({2, 2}, false)}, first), "flops 32 keeps 0");
  EXPECT_EQ(gradient({Op::AveragePool, x, pool({2, 2}, true)}, first), "flops 32 keeps");
  EXPECT_EQ(gradient({Op::GlobalAveragePool, x}, first), "flops 2 keeps");
  EXPECT_EQ(gradient({Op::ReduceMean, x, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{0}}}}, first), "flops 2 keeps");
}

TEST(Gradient, OfNormalizations) {
  // 24 elements of 2 channels.
  const TensorType x = f32({1, 2, 3, 4}), c = f32({2});
  const GradientCase bn{Op::BatchNormalization, {x, c, c, c, c}, {{"epsilon", 1e-5}}};
  EXPECT_EQ(gradient(bn, first), "flops 30 keeps 1 4");  // 1 an element; 3 a channel: scale / sqrt(variance + epsilon)
  EXPECT_EQ(gradient(bn, second | third), "flops 96 keeps 0 3 4");  // 3 + 1 an element
  EXPECT_THAT(gradient(bn, 8), HasSubstr("mean and variance are not trained"));
  const GradientCase ln{
      Op::LayerNormalization, {f32({2, 12}), f32({12}), f32({12})}, {{"axis", int64_t{1}}, {"epsilon", 1e-5}}};
  EXPECT_EQ(gradient(ln, first), "flops 336 keeps 0 1");         // 14 an element
  EXPECT_EQ(gradient(ln, second | third), "flops 240 keeps 0");  // normalized again 8, a product, two sums
  const GradientCase in{Op::InstanceNormalization, {x, c, c}, {{"epsilon", 1e-5}}};
  EXPECT_EQ(gradient(in, first), "flops 360 keeps 0 1");  // 14, and dy scale
  const GradientCase lrn{Op::LRN, {x}, {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}, {"size", int64_t{5}}}};
  EXPECT_EQ(gradient(lrn, first), "flops 600 keeps 0");  // 3 x 5 + 10 an element
  EXPECT_EQ(gradient({Op::Softmax, {f32({2, 12})}, {{"axis", int64_t{1}}}}, first),
            "flops 96 keeps y");  // 4 an element
}

TEST(Gradient, OfRearrangementsIsACopyAndOfViewsNothing) {
  const TensorType x = f32({2, 3});
  EXPECT_EQ(gradient({Op::Concat, {x, x}, {{"axis", int64_t{1}}}}, first | second), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Transpose, {x}, {{"perm", Ints{1, 0}}}}, first), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Pad, {x}, {{"pads", Ints{0, 1, 0, 1}}, {"value", 0.0}}}, first), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Flatten, {x}, {{"axis", int64_t{1}}}}, first), "flops 0 keeps");
  EXPECT_EQ(gradient({Op::Identity, {x}}, first), "flops 0 keeps");
}

// Each is flat, of a training step, or of a cache; the rest has a rule.
TEST(Gradient, OperatorsWithoutOneSayWhy) {
  std::string flat, of_a_step;
  for (int i = 0; i < op_count; ++i) {
    const Operator& row = info(static_cast<Op>(i));
    if (row.gradient.rule != nullptr) continue;
    EXPECT_EQ(row.gradient.none == NoGradient::of_a_cache, row.scalars != nullptr) << row.name;
    if (row.scalars != nullptr) continue;
    (row.gradient.none == NoGradient::flat ? flat : of_a_step) += std::string(row.name) + " ";
    const bool made_by_us = row.name.ends_with("Gradient") || row.name.ends_with("Update") || row.op == Op::Accumulate;
    EXPECT_EQ(row.gradient.none == NoGradient::of_a_step, made_by_us) << row.name;
  }
  EXPECT_EQ(
      flat,
      "Ceil Floor Round Sign Not BitwiseNot IsNaN IsInf BitShift BitwiseAnd BitwiseOr BitwiseXor And Or Xor Equal "
      "Greater GreaterOrEqual Less LessOrEqual ArgMax ArgMin QuantizeLinear MaxPoolIndices ");
}

TEST(Gradient, OfRecurrentLayersIsThreeTimesTheirWork) {
  // 2 samples, 3 steps, 5 hidden units: 30 states. Each unit meets 20 / 5 rows of 4 inputs and 5 states, 2 operations a
  // weight, and 9 functions and products: 81 operations a state.
  const GradientCase lstm{Op::LSTM,
                          {f32({2, 3, 4}), f32({1, 20, 4}), f32({1, 20, 5}), f32({1, 40})},
                          {{"direction", std::string("forward")}}};
  EXPECT_EQ(gradient(lstm, first), "flops 7290 keeps 0 1 2 3");
}

TEST(Gradient, OfAttentionIsFiveProducts) {
  // 1 sample, 2 heads, 3 queries of 4 numbers, 5 keys, values of 6. Scores 2 x 3 x 5 = 30: 240 operations for them, 30
  // each to scale them, 150 for the shares, 360 for dV; dY Vᵀ 360, the softmax's gradient 120, dQ 240 and 24, dK 240
  // and 40.
  const GradientCase attention{Op::Attention,
                               {f32({1, 2, 3, 4}), f32({1, 2, 5, 4}), f32({1, 2, 5, 6})},
                               {{"causal", int64_t{0}}, {"scale", 0.5}}};
  EXPECT_EQ(gradient(attention, third), "flops 780 keeps 0 1");
  EXPECT_EQ(gradient(attention, first | second | third), "flops 1804 keeps 0 1 2");
}

// One step of each by hand, the second of Adam with states that the first has left.
TEST(Optimizers, UpdateAWeight) {
  const TensorType type{DType::f32, {2}};
  const auto tensor = [&](float a, float b) { return Tensor{type, {a, b}}; };
  const auto step = [&](Optimizer optimizer, double rate, std::vector<Tensor> inputs) {
    std::vector<TensorType> types{type, {DType::f32, {2, 1}}};
    for (const TensorType& state : update_states(optimizer, type)) types.push_back(state);
    const Attrs attrs = update_attrs(optimizer, rate);
    const auto made = info(update_op(optimizer)).infer(types, attrs).value();
    std::vector<const Tensor*> pointers;
    for (const Tensor& one : inputs) pointers.push_back(&one);
    return evaluate_op(update_op(optimizer), attrs, pointers, made);
  };
  const Tensor w = tensor(1, -2), g = tensor(0.5F, 4);
  EXPECT_EQ(step(Optimizer::sgd, 0.5, {w, g})[0].values, (std::vector<float>{0.75F, -4}));
  const auto momentum = step(Optimizer::momentum, 0.5, {w, g, tensor(1, 0)});
  EXPECT_FLOAT_EQ(momentum[1].values[0], 0.9F + 0.5F);
  EXPECT_FLOAT_EQ(momentum[0].values[0], 1 - 0.5F * 1.4F);
  EXPECT_FLOAT_EQ(momentum[0].values[1], -4);
  // The first step of Adam is the rate, whatever the gradient (its epsilon apart).
  Tensor none = tensor_of({DType::i64, {1}}, std::string(8, '\0'));
  const auto first = step(Optimizer::adam, 0.25, {w, g, tensor(0, 0), tensor(0, 0), none});
  EXPECT_NEAR(first[0].values[0], 0.75, 1e-6);
  EXPECT_NEAR(first[0].values[1], -2.25, 1e-6);
  const auto second = step(Optimizer::adam, 0.25, {first[0], tensor(0, 4), first[1], first[2], first[3]});
  const double mean = 0.9 * 0.05 / (1 - 0.81), square = 0.999 * 0.00025 / (1 - 0.999 * 0.999);
  EXPECT_NEAR(second[0].values[0], 0.75 - 0.25 * mean / std::sqrt(square), 1e-4);
  EXPECT_NEAR(second[0].values[1], -2.5, 1e-5);
  int64_t steps = 0;
  const std::string counted(bytes_of(second[3]));
  std::memcpy(&steps, counted.data(), sizeof(steps));
  EXPECT_EQ(steps, 2);
}

TEST(Optimizers, CountTheirOperationsAndState) {
  const TensorType type{DType::f32, {10, 10}};
  const auto operations = [&](Optimizer optimizer) {
    std::vector<TensorType> in{type, {DType::f32, {100}}};
    for (const TensorType& state : update_states(optimizer, type)) in.push_back(state);
    const Attrs attrs = update_attrs(optimizer, 1);
    return info(update_op(optimizer)).flops(in, info(update_op(optimizer)).infer(in, attrs).value(), attrs).value();
  };
  EXPECT_EQ(operations(Optimizer::sgd), 200);       // w - rate g
  EXPECT_EQ(operations(Optimizer::momentum), 400);  // and decay v + g
  EXPECT_EQ(operations(Optimizer::adam), 1200);
  const TensorType count{DType::i64, {1}};
  EXPECT_THAT(update_states(Optimizer::sgd, type), ::testing::IsEmpty());
  EXPECT_THAT(update_states(Optimizer::momentum, type), ::testing::ElementsAre(type));
  EXPECT_THAT(update_states(Optimizer::adam, type), ::testing::ElementsAre(type, type, count));
  EXPECT_FALSE(is_update(Op::Add));
  const auto refused = [&](Op op, std::vector<TensorType> in) {
    const auto made = info(op).infer(in, update_attrs(op == Op::SgdUpdate ? Optimizer::sgd : Optimizer::adam, 1));
    return made.ok() ? "accepted" : made.error().message;
  };
  const TensorType other{DType::f32, {99}};
  EXPECT_THAT(refused(Op::SgdUpdate, {type, other}), ::testing::HasSubstr("an update of f32[10,10] with f32[99]"));
  EXPECT_THAT(refused(Op::AdamUpdate, {type, type, other, type, count}), ::testing::HasSubstr("with f32[99]"));
  EXPECT_THAT(refused(Op::AdamUpdate, {type, type, type, type, type}), ::testing::HasSubstr("is i64[1], not f32"));
}

}  // namespace
}  // namespace nlsplit
