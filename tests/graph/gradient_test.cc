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

// Each is flat, of a training step, of a cache or of a choice; the rest has a rule.
TEST(Gradient, OperatorsWithoutOneSayWhy) {
  std::string flat, of_a_step;
  for (int i = 0; i < op_count; ++i) {
    const Operator& row = info(static_cast<Op>(i));
    if (row.gradient.rule != nullptr) continue;
    EXPECT_EQ(row.gradient.none == NoGradient::of_a_cache, row.scalars != nullptr) << row.name;
    EXPECT_EQ(row.gradient.none == NoGradient::of_a_choice, row.op == Op::Experts) << row.name;
    if (row.op == Op::Experts) continue;
    if (row.scalars != nullptr) continue;
    (row.gradient.none == NoGradient::flat ? flat : of_a_step) += std::string(row.name) + " ";
    const bool made_by_us = row.name.ends_with("Gradient") || is_update(row.op) || row.op == Op::Accumulate ||
                            row.op == Op::MovingAverage || row.op == Op::StepCount || row.op == Op::LearningRate ||
                            row.op == Op::SumOfSquares || row.op == Op::ClipFactor;
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

// Operands of an update behind the weight and its gradient.
std::vector<TensorType> types_of_update(Optimizer optimizer, const TensorType& weight, bool clipped) {
  std::vector<TensorType> types{weight, {weight.dtype, {element_count(weight.shape), 1}}};
  for (const TensorType& state : update_states(optimizer, weight)) types.push_back(state);
  if (counts_steps(optimizer)) types.push_back(steps_type());
  types.push_back(rate_type());
  if (clipped) types.push_back(rate_type());
  return types;
}

Tensor whole_number(int64_t value) {
  return tensor_of(steps_type(), std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
}

// Three steps of one weight with rates that change, as PyTorch 2.15 makes them in float64 (torch.optim.SGD, Adam and
// AdamW, weight_decay 0.1, momentum 0.8, betas 0.8 and 0.95, eps 1e-6); with clipping behind clip_grad_norm_(1.5).
struct UpdateCase {
  const char* name;
  Optimizer optimizer;
  bool nesterov;
  double weights[2][3][3];  // [clipped][step]
};
const UpdateCase update_cases[] = {
    {"sgd",
     Optimizer::sgd,
     false,
     {{{0.94, -2.38, 0.52}, {0.9728, -2.3931, 0.4674}, {0.9308544, -2.3683138, 0.4639652}},
      {{0.971430471, -2.128556234, 0.504284765},
       {1.004073318, -2.142913453, 0.451763341},
       {0.975274196, -2.125232138, 0.449185378}}}},
    {"momentum",
     Optimizer::momentum,
     false,
     {{{0.94, -2.38, 0.52}, {0.9488, -2.5451, 0.4754}, {0.9097184, -2.5728418, 0.4576772}},
      {{0.971430471, -2.128556234, 0.504284765},
       {0.992645507, -2.194335946, 0.453477247},
       {0.970658052, -2.197601294, 0.43463745}}}},
    {"nesterov",
     Optimizer::momentum,
     true,
     {{{0.892, -2.684, 0.536}, {0.932272, -2.826444, 0.447576}, {0.859230061, -2.822145282, 0.430026646}},
      {{0.948574847, -2.231401221, 0.507712576},
       {0.998395424, -2.297456605, 0.414514288},
       {0.952037749, -2.281781848, 0.396996939}}}},
    {"adam",
     Optimizer::adam,
     false,
     {{{0.900000167, -2.099999974, 0.5999995},
       {0.907918038, -2.134768501, 0.567608195},
       {0.895995844, -2.140026631, 0.555898433}},
      {{0.90000035, -2.099999922, 0.599997666},
       {0.923362882, -2.139764119, 0.562491629},
       {0.913919069, -2.141307638, 0.549747103}}}},
    {"adamw",
     Optimizer::adamw,
     false,
     {{{0.8900002, -2.079999975, 0.5949996},
       {0.90072899, -2.106113363, 0.561875156},
       {0.888013691, -2.108753975, 0.55027574}},
      {{0.890000539, -2.079999933, 0.594998923},
       {0.915788755, -2.112355002, 0.556261779},
       {0.906221586, -2.113891316, 0.543531536}}}},
};

TEST(Optimizers, UpdateAWeightAsPyTorchDoes) {
  const TensorType type{DType::f32, {3}};
  const float gradients[3][3] = {{0.5F, 4, -0.25F}, {-0.75F, 0.5F, 1}, {2, -1, 0.125F}};
  const float rates[3] = {0.1F, 0.05F, 0.02F};
  OptimizerSettings settings;
  settings.decay = 0.1, settings.momentum = 0.8, settings.beta1 = 0.8, settings.beta2 = 0.95, settings.epsilon = 1e-6;
  for (const UpdateCase& test : update_cases) {
    settings.nesterov = test.nesterov;
    const Attrs attrs = update_attrs(test.optimizer, settings);
    for (const bool clipped : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", test.name, clipped ? ", clipped" : ""));
      const std::vector<TensorType> types = types_of_update(test.optimizer, type, clipped);
      const std::vector<TensorType> made = info(update_op(test.optimizer)).infer(types, attrs).value();
      std::vector<Tensor> kept{{type, {1, -2, 0.5F}}};
      for (const TensorType& state : update_states(test.optimizer, type)) kept.push_back({state, {0, 0, 0}});
      for (size_t step = 0; step < 3; ++step) {
        const Tensor gradient{types[1], {gradients[step][0], gradients[step][1], gradients[step][2]}};
        std::vector<Tensor> inputs{kept[0], gradient};
        inputs.insert(inputs.end(), kept.begin() + 1, kept.end());
        if (counts_steps(test.optimizer)) inputs.push_back(whole_number(static_cast<int64_t>(step)));
        inputs.push_back({rate_type(), {rates[step]}});
        if (clipped) {
          const std::vector<TensorType> sum{{DType::f64, {1}}};
          const std::vector<Tensor> squares = evaluate_op(Op::SumOfSquares, {}, std::vector{&gradient}, sum);
          const std::vector<TensorType> factor{rate_type(), rate_type()};
          inputs.push_back(evaluate_op(Op::ClipFactor, {{"clip", 1.5}}, std::vector{&squares[0]}, factor)[1]);
        }
        std::vector<const Tensor*> pointers;
        for (const Tensor& one : inputs) pointers.push_back(&one);
        kept = evaluate_op(update_op(test.optimizer), attrs, pointers, made);
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(kept[0].values[i], test.weights[clipped ? 1 : 0][step][i], 2e-6);
      }
    }
  }
}

// The cosine as PyTorch 2.15's CosineAnnealingLR(T_max=10, eta_min=0.03) has it.
TEST(Optimizers, RatesFollowTheirSchedule) {
  const auto rates = [](const RateSchedule& schedule, int64_t steps) {
    const Attrs attrs = rate_attrs(schedule);
    std::vector<double> all;
    for (int64_t step = 0; step < steps; ++step) {
      const Tensor before = whole_number(step);
      const std::vector<TensorType> types{steps_type()};
      const std::vector<TensorType> made = info(Op::LearningRate).infer(types, attrs).value();
      all.push_back(static_cast<double>(evaluate_op(Op::LearningRate, attrs, std::vector{&before}, made)[0].values[0]));
    }
    return all;
  };
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-7) << "step " << i;
  };
  expect(rates({0.5}, 3), {0.5, 0.5, 0.5});
  const std::vector<double> cosine = {0.3,         0.29339263,  0.274217294, 0.244351009, 0.206717294, 0.165,
                                      0.123282706, 0.085648991, 0.055782706, 0.03660737,  0.03};
  expect(rates({0.3, 0, 10, 0.03, {}}, 11), cosine);
  std::vector<double> warm = {0.06, 0.12, 0.18, 0.24, 0.3};
  warm.insert(warm.end(), cosine.begin(), cosine.end());
  warm.insert(warm.end(), {0.03, 0.03});
  expect(rates({0.3, 5, 10, 0.03, {}}, 18), warm);
  expect(rates({0.4, 2, 0, 0, {{3, 0.2}, {5, 0.1}}}, 7), {0.2, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1});
}

TEST(Optimizers, ClipByTheNormOfAllGradients) {
  const TensorType sum{DType::f64, {1}};
  const std::vector<TensorType> sums{sum}, factor{rate_type(), rate_type()};
  const auto squares = [&](const Tensor& gradient) {
    return evaluate_op(Op::SumOfSquares, {}, std::vector{&gradient}, sums)[0];
  };
  const auto clip = [&](double at, const std::vector<const Tensor*>& parts) {
    const std::vector<Tensor> made = evaluate_op(Op::ClipFactor, {{"clip", at}}, parts, factor);
    return std::pair(made[0].values[0], made[1].values[0]);
  };
  const Tensor a = squares({{DType::f32, {2}}, {3, 0}}), b = squares({{DType::f32, {1, 1}}, {-4}});
  EXPECT_EQ(clip(10, {&a, &b}), std::pair(5.0F, 1.0F));
  EXPECT_EQ(clip(1, {&a, &b}), std::pair(5.0F, static_cast<float>(1 / (5 + 1e-6))));
  // Nothing is lost of small gradients beside large ones that f32 would lose, whatever the blocks.
  Tensor many{{DType::f32, {3 * 4096 + 5}}, std::vector<float>(3 * 4096 + 5, 1)};
  many.values[0] = 8192;
  const Tensor of_many = squares(many);
  EXPECT_EQ(clip(1, {&of_many}).first, static_cast<float>(std::sqrt(8192.0 * 8192.0 + 3 * 4096 + 4)));
  const Tensor broken = squares({{DType::f32, {2}}, {1, std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_TRUE(std::isnan(clip(1, {&a, &broken}).second)) << "as PyTorch: the weights show it";
}

TEST(Optimizers, CountTheirOperationsAndState) {
  const TensorType type{DType::f32, {10, 10}};
  const auto operations = [&](Optimizer optimizer, bool clipped, const OptimizerSettings& settings = {}) {
    const std::vector<TensorType> in = types_of_update(optimizer, type, clipped);
    const Attrs attrs = update_attrs(optimizer, settings);
    return info(update_op(optimizer)).flops(in, info(update_op(optimizer)).infer(in, attrs).value(), attrs).value();
  };
  EXPECT_EQ(operations(Optimizer::sgd, false), 200);       // w - rate g
  EXPECT_EQ(operations(Optimizer::sgd, true), 300);        // of a factor times g
  EXPECT_EQ(operations(Optimizer::momentum, false), 400);  // and momentum v + g
  EXPECT_EQ(operations(Optimizer::adam, false), 1300);
  EXPECT_EQ(operations(Optimizer::adamw, false), 1500);  // it decays
  OptimizerSettings settings;
  settings.decay = 0.5, settings.nesterov = true;
  EXPECT_EQ(operations(Optimizer::sgd, false, settings), 400);
  EXPECT_EQ(operations(Optimizer::momentum, false, settings), 800);
  EXPECT_EQ(update_attrs(Optimizer::sgd, settings, false), Attrs({{"decay", 0.0}})) << "of another group";
  EXPECT_THAT(update_states(Optimizer::sgd, type), ::testing::IsEmpty());
  EXPECT_THAT(update_states(Optimizer::momentum, type), ::testing::ElementsAre(type));
  EXPECT_THAT(update_states(Optimizer::adam, type), ::testing::ElementsAre(type, type));
  for (const Optimizer optimizer : all_optimizers()) {
    EXPECT_TRUE(is_update(update_op(optimizer)));
    EXPECT_EQ(state_names(optimizer).size(), update_states(optimizer, type).size());
  }
  EXPECT_FALSE(is_update(Op::Add));
  const auto refused = [&](Optimizer optimizer, size_t operand, const TensorType& other) {
    std::vector<TensorType> in = types_of_update(optimizer, type, false);
    in[operand] = other;
    const auto made = info(update_op(optimizer)).infer(in, update_attrs(optimizer, {}));
    return made.ok() ? "accepted" : made.error().message;
  };
  const TensorType other{DType::f32, {99}};
  EXPECT_THAT(refused(Optimizer::sgd, 1, other), ::testing::HasSubstr("an update of f32[10,10] with f32[99]"));
  EXPECT_THAT(refused(Optimizer::adam, 2, other), ::testing::HasSubstr("with f32[99]"));
  EXPECT_THAT(refused(Optimizer::adamw, 4, type), ::testing::HasSubstr("is i64[1], not f32"));
  EXPECT_THAT(refused(Optimizer::momentum, 3, other), ::testing::HasSubstr("are f32[1], not f32[99]"));
}

}  // namespace
}  // namespace nlsplit
