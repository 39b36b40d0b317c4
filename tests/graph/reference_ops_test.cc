// Every op of the reference evaluator against values derived by hand, and convolution against the textbook's seven
// loops.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/operators/operator.h"
#include "graph/reference/evaluate.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using Ints = std::vector<int64_t>;

Tensor run(Op op, const Attrs& attrs, const std::vector<Tensor>& inputs) { return run_op(op, attrs, inputs)[0]; }

Attrs conv_attrs(Ints kernel, Ints pads, Ints strides, Ints dilations, int64_t group) {
  return {{"dilations", dilations}, {"group", group}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
}

Tensor one_to_nine() { return tensor({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}); }

TEST(ReferenceOps, ConvIsCrossCorrelationWithBias) {
  // Top left: 1*1 + 2*2 + 4*3 + 5*4 = 37; each step right or down adds 10 or 30 (the kernel's sum is 10). Bias 0.5.
  const Tensor y = run(Op::Conv, conv_attrs({2, 2}, {0, 0, 0, 0}, {1, 1}, {1, 1}, 1),
                       {one_to_nine(), tensor({1, 1, 2, 2}, {1, 2, 3, 4}), tensor({1}, {0.5})});
  expect_close(y, tensor({1, 1, 2, 2}, {37.5, 47.5, 67.5, 77.5}));
}

TEST(ReferenceOps, ConvPadsAreTopLeftBottomRight) {
  // One row above and two columns to the right: 4 x 5. A 1x1 kernel of value 2 shows where the padding is.
  const Tensor y =
      run(Op::Conv, conv_attrs({1, 1}, {1, 0, 0, 2}, {1, 1}, {1, 1}, 1), {one_to_nine(), tensor({1, 1, 1, 1}, {2})});
  expect_close(y, tensor({1, 1, 4, 5}, {0, 0, 0, 0, 0, 2, 4, 6, 0, 0, 8, 10, 12, 0, 0, 14, 16, 18, 0, 0}));
}

TEST(ReferenceOps, ConvStridesAndDilates) {
  // Stride 2: corners. Dilation 2 on a 2x2 kernel: 1*1 + 3*2 + 7*3 + 9*4 = 64.
  expect_close(
      run(Op::Conv, conv_attrs({1, 1}, {0, 0, 0, 0}, {2, 2}, {1, 1}, 1), {one_to_nine(), tensor({1, 1, 1, 1}, {1})}),
      tensor({1, 1, 2, 2}, {1, 3, 7, 9}));
  expect_close(run(Op::Conv, conv_attrs({2, 2}, {0, 0, 0, 0}, {1, 1}, {2, 2}, 1),
                   {one_to_nine(), tensor({1, 1, 2, 2}, {1, 2, 3, 4})}),
               tensor({1, 1, 1, 1}, {64}));
}

TEST(ReferenceOps, ConvGroupsSeeTheirOwnChannels) {
  // 4 channels of one pixel, 2 groups: output 0 = 1*1 + 2*10, output 1 = 3*2 + 4*20.
  const Tensor y = run(Op::Conv, conv_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, {1, 1}, 2),
                       {tensor({1, 4, 1, 1}, {1, 2, 3, 4}), tensor({2, 2, 1, 1}, {1, 10, 2, 20})});
  expect_close(y, tensor({1, 2, 1, 1}, {21, 86}));
}

TEST(ReferenceOps, ConvEqualsTheSevenLoops) {
  for (int64_t group : {1, 2, 4}) {
    const Attrs attrs = conv_attrs({3, 2}, {1, 0, 2, 1}, {2, 1}, {1, 2}, group);
    const Tensor x = random_tensor({DType::f32, {2, 4, 6, 7}}, 1),
                 w = random_tensor({DType::f32, {8, 4 / group, 3, 2}}, 2);
    const Tensor y = run(Op::Conv, attrs, {x, w});
    ASSERT_EQ(y.type.shape, (Shape{2, 8, 4, 6}));  // (6 + 3 - 3) / 2 + 1 and 7 + 1 - 3 + 1
    Tensor expected = y;
    size_t at = 0;
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t m = 0; m < 8; ++m) {
        for (int64_t oh = 0; oh < 4; ++oh) {
          for (int64_t ow = 0; ow < 6; ++ow) {
            double sum = 0;
            for (int64_t c = 0; c < 4 / group; ++c) {
              for (int64_t kh = 0; kh < 3; ++kh) {
                for (int64_t kw = 0; kw < 2; ++kw) {
                  const int64_t h = oh * 2 - 1 + kh, v = ow + kw * 2, channel = m / (8 / group) * (4 / group) + c;
                  if (h < 0 || h >= 6 || v >= 7) continue;
                  sum += static_cast<double>(x.values[((n * 4 + channel) * 6 + h) * 7 + v]) *
                         w.values[((m * (4 / group) + c) * 3 + kh) * 2 + kw];
                }
              }
            }
            expected.values[at++] = static_cast<float>(sum);
          }
        }
      }
    }
    expect_close(y, expected);
  }
}

Attrs conv_transpose_attrs(Ints kernel, Ints pads, Ints strides, Ints dilations, Ints more, int64_t group) {
  Attrs attrs = conv_attrs(kernel, pads, strides, dilations, group);
  set_attr(attrs, "output_padding", more);
  return attrs;
}

TEST(ReferenceOps, ConvTransposeSpreadsItsInput) {
  const Tensor x = tensor({1, 1, 2, 2}, {1, 2, 3, 4}), w = tensor({1, 1, 2, 2}, {1, 10, 100, 1000});
  // Stride 2: no windows overlap, each input is a block of its own. Bias 0.5.
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({2, 2}, {0, 0, 0, 0}, {2, 2}, {1, 1}, {0, 0}, 1),
                   {x, w, tensor({1}, {0.5})}),
               tensor({1, 1, 4, 4}, {1.5, 10.5, 2.5, 20.5, 100.5, 1000.5, 200.5, 2000.5, 3.5, 30.5, 4.5, 40.5, 300.5,
                                     3000.5, 400.5, 4000.5}));
  // Stride 1: 2x2 windows overlap by one. Middle: 1 * 1000 + 2 * 100 + 3 * 10 + 4 * 1.
  const Ints unit{1, 1};
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({2, 2}, {0, 0, 0, 0}, unit, unit, {0, 0}, 1), {x, w}),
               tensor({1, 1, 3, 3}, {1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
  // Pads take the first row and the last column away.
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({2, 2}, {1, 0, 0, 1}, unit, unit, {0, 0}, 1), {x, w}),
               tensor({1, 1, 2, 2}, {103, 1234, 300, 3400}));
  // Dilation 2 leaves a gap in the filter; output_padding 1 adds a row that no window reaches.
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({2, 2}, {0, 0, 0, 0}, unit, {2, 2}, {1, 0}, 1),
                   {tensor({1, 1, 1, 1}, {3}), w}),
               tensor({1, 1, 4, 3}, {3, 0, 30, 0, 0, 0, 300, 0, 3000, 0, 0, 0}));
}

TEST(ReferenceOps, ConvTransposeGroups) {
  // Two groups of two channels and one filter each: 1*1 + 2*10 and 3*2 + 4*20; weights are [channel][filter].
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, {1, 1}, {0, 0}, 2),
                   {tensor({1, 4, 1, 1}, {1, 2, 3, 4}), tensor({4, 1, 1, 1}, {1, 10, 2, 20})}),
               tensor({1, 2, 1, 1}, {21, 86}));
  // One group of one channel with two filters.
  expect_close(run(Op::ConvTranspose, conv_transpose_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, {1, 1}, {0, 0}, 1),
                   {tensor({1, 1, 1, 2}, {1, 2}), tensor({1, 2, 1, 1}, {3, 5})}),
               tensor({1, 2, 1, 2}, {3, 6, 5, 10}));
}

// <conv(x, w), y> = <x, conv_transpose(y, w)> for all x and y: what "transposed" means.
TEST(ReferenceOps, ConvTransposeIsTheTransposeOfConv) {
  const Attrs attrs = conv_attrs({3, 2}, {1, 0, 2, 1}, {2, 1}, {1, 2}, 2);
  const Tensor x = random_tensor({DType::f32, {2, 4, 7, 8}}, 1), w = random_tensor({DType::f32, {6, 2, 3, 2}}, 2);
  const Tensor forth = run(Op::Conv, attrs, {x, w});
  const Tensor y = random_tensor(forth.type, 3);
  Attrs back_attrs = attrs;
  // (7 + 3 - 3) is odd: one row of x is met by no window of stride 2.
  set_attr(back_attrs, "output_padding", Ints{1, 0});
  const Tensor back = run(Op::ConvTranspose, back_attrs, {y, w});
  ASSERT_EQ(back.type, x.type);
  double left = 0, right = 0;
  for (size_t i = 0; i < y.values.size(); ++i) left += static_cast<double>(forth.values[i]) * y.values[i];
  for (size_t i = 0; i < x.values.size(); ++i) right += static_cast<double>(x.values[i]) * back.values[i];
  EXPECT_NEAR(left, right, 1e-4);
  EXPECT_GT(std::abs(left), 1) << "or nothing was compared";
}

TEST(ReferenceOps, GemmTransposesScalesAndBroadcastsC) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4}), b = tensor({2, 2}, {5, 6, 7, 8});
  auto attrs = [](double alpha, double beta, int64_t ta, int64_t tb) {
    return Attrs{{"alpha", alpha}, {"beta", beta}, {"transA", ta}, {"transB", tb}};
  };
  expect_close(run(Op::Gemm, attrs(1, 1, 0, 0), {a, b}), tensor({2, 2}, {19, 22, 43, 50}));
  expect_close(run(Op::Gemm, attrs(1, 1, 1, 0), {a, b}), tensor({2, 2}, {26, 30, 38, 44}));  // [1 3; 2 4] b
  expect_close(run(Op::Gemm, attrs(1, 1, 0, 1), {a, b}), tensor({2, 2}, {17, 23, 39, 53}));  // a [5 7; 6 8]
  expect_close(run(Op::Gemm, attrs(2, 10, 0, 0), {a, b, tensor({2}, {1, 2})}), tensor({2, 2}, {48, 64, 96, 120}));
  expect_close(run(Op::Gemm, attrs(1, 1, 0, 0), {a, b, tensor({2, 1}, {100, 200})}),
               tensor({2, 2}, {119, 122, 243, 250}));
  expect_close(run(Op::Gemm, attrs(1, 1, 0, 0), {a, b, tensor({}, {1000})}), tensor({2, 2}, {1019, 1022, 1043, 1050}));
}

TEST(ReferenceOps, MatMulFollowsNumpy) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), v = tensor({3}, {1, 10, 100});
  expect_close(run(Op::MatMul, {}, {a, v}), tensor({2}, {321, 654}));
  expect_close(run(Op::MatMul, {}, {tensor({2}, {1, 10}), a}), tensor({3}, {41, 52, 63}));
  expect_close(run(Op::MatMul, {}, {v, v}), tensor({}, {10101}));
  expect_close(run(Op::MatMul, {}, {tensor({2}, {1, 10}), a, tensor({3}, {100, 200, 300})}),
               tensor({3}, {141, 252, 363}));
  // A batch of two matrices by one matrix: the identity doubled.
  expect_close(run(Op::MatMul, {}, {tensor({2, 1, 2}, {1, 2, 3, 4}), tensor({2, 2}, {2, 0, 0, 2})}),
               tensor({2, 1, 2}, {2, 4, 6, 8}));
  // Batches [2,1] and [3] broadcast to [2,3]; 1x1 matrices make it an outer product.
  expect_close(run(Op::MatMul, {}, {tensor({2, 1, 1, 1}, {1, 2}), tensor({3, 1, 1}, {3, 4, 5})}),
               tensor({2, 3, 1, 1}, {3, 4, 5, 6, 8, 10}));
}

TEST(ReferenceOps, BinaryOpsBroadcastBothWays) {
  const Tensor column = tensor({2, 1}, {8, 4}), row = tensor({3}, {1, 2, 4});
  expect_close(run(Op::Add, {}, {column, row}), tensor({2, 3}, {9, 10, 12, 5, 6, 8}));
  expect_close(run(Op::Sub, {}, {column, row}), tensor({2, 3}, {7, 6, 4, 3, 2, 0}));
  expect_close(run(Op::Mul, {}, {row, column}), tensor({2, 3}, {8, 16, 32, 4, 8, 16}));
  expect_close(run(Op::Div, {}, {column, row}), tensor({2, 3}, {8, 4, 2, 4, 2, 1}));
  expect_close(run(Op::Div, {}, {tensor({}, {1}), column}), tensor({2, 1}, {0.125, 0.25}));
}

TEST(ReferenceOps, SumAddsAllItsInputs) {
  expect_close(run(Op::Sum, {}, {tensor({2}, {1, 2}), tensor({2}, {10, 20}), tensor({2}, {100, 200})}),
               tensor({2}, {111, 222}));
}

TEST(ReferenceOps, UnaryOps) {
  const Tensor x = tensor({4}, {-4, -1, 0.5, 4});
  expect_close(run(Op::Relu, {}, {x}), tensor({4}, {0, 0, 0.5, 4}));
  expect_close(run(Op::Neg, {}, {x}), tensor({4}, {4, 1, -0.5, -4}));
  expect_close(run(Op::LeakyRelu, {{"alpha", 0.25}}, {x}), tensor({4}, {-1, -0.25, 0.5, 4}));
  expect_close(run(Op::Clip, {{"max", 3.0}, {"min", -2.0}}, {x}), tensor({4}, {-2, -1, 0.5, 3}));
  expect_close(run(Op::Clip, {{"max", HUGE_VAL}, {"min", -HUGE_VAL}}, {x}), x);
  expect_close(run(Op::HardSigmoid, {{"alpha", 0.25}, {"beta", 0.5}}, {x}), tensor({4}, {0, 0.25, 0.625, 1}));
  // x * clip(x / 6 + 1/2, 0, 1): -1 * 1/3, 0.5 * 7/12.
  expect_close(run(Op::HardSwish, {}, {x}), tensor({4}, {0, -1.0f / 3, 3.5f / 12, 4}));
  // Tables: sigmoid(4) = 0.9820138, tanh(1/2) = 0.4621172, e^(1/2) = 1.6487213, erf(1/2) = 0.5204999, erf(1) =
  // 0.8427008.
  expect_close(run(Op::Sigmoid, {}, {x}), tensor({4}, {0.0179862f, 0.2689414f, 0.6224593f, 0.9820138f}));
  expect_close(run(Op::Tanh, {}, {x}), tensor({4}, {-0.9993293f, -0.7615942f, 0.4621172f, 0.9993293f}));
  expect_close(run(Op::Exp, {}, {x}), tensor({4}, {0.0183156f, 0.3678794f, 1.6487213f, 54.5981500f}));
  expect_close(run(Op::Erf, {}, {x}), tensor({4}, {-1, -0.8427008f, 0.5204999f, 1}));
  expect_close(run(Op::Sqrt, {}, {tensor({3}, {0, 2.25, 9})}), tensor({3}, {0, 1.5, 3}));
}

Attrs pool_attrs(Ints kernel, Ints pads, Ints strides, int64_t ceil_mode) {
  return {{"ceil_mode", ceil_mode}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
}

TEST(ReferenceOps, MaxPoolIgnoresPaddingAndDilates) {
  Attrs attrs = pool_attrs({2, 2}, {1, 1, 0, 0}, {1, 1}, 0);
  set_attr(attrs, "dilations", Ints{1, 1});
  Tensor negative = one_to_nine();
  for (float& v : negative.values) v = -v;
  // Windows end at each pixel; the largest of negative values is the top left one of those inside.
  expect_close(run(Op::MaxPool, attrs, {negative}), tensor({1, 1, 3, 3}, {-1, -1, -2, -1, -1, -2, -4, -4, -5}));
  attrs = pool_attrs({2, 2}, {0, 0, 0, 0}, {1, 1}, 0);
  set_attr(attrs, "dilations", Ints{2, 2});
  expect_close(run(Op::MaxPool, attrs, {one_to_nine()}), tensor({1, 1, 1, 1}, {9}));
}

TEST(ReferenceOps, MaxPoolCeilModeKeepsTheRest) {
  Attrs attrs = pool_attrs({2, 2}, {0, 0, 0, 0}, {2, 2}, 1);
  set_attr(attrs, "dilations", Ints{1, 1});
  expect_close(run(Op::MaxPool, attrs, {one_to_nine()}), tensor({1, 1, 2, 2}, {5, 6, 8, 9}));
}

TEST(ReferenceOps, AveragePoolCountsWhatItIsToldTo) {
  Attrs attrs = pool_attrs({2, 2}, {1, 1, 0, 0}, {2, 2}, 0);
  set_attr(attrs, "count_include_pad", int64_t{0});
  // Windows: {1}, {2, 3}, {4, 7}, {5, 6, 8, 9}.
  expect_close(run(Op::AveragePool, attrs, {one_to_nine()}), tensor({1, 1, 2, 2}, {1, 2.5, 5.5, 7}));
  set_attr(attrs, "count_include_pad", int64_t{1});
  expect_close(run(Op::AveragePool, attrs, {one_to_nine()}), tensor({1, 1, 2, 2}, {0.25, 1.25, 2.75, 7}));
}

TEST(ReferenceOps, AveragePoolNeverCountsWhatLiesBehindThePadding) {
  Attrs attrs = pool_attrs({2, 2}, {0, 0, 0, 0}, {2, 2}, 1);
  set_attr(attrs, "count_include_pad", int64_t{1});
  // ceil_mode's last windows hang over: {3, 6}, {7, 8}, {9}.
  expect_close(run(Op::AveragePool, attrs, {one_to_nine()}), tensor({1, 1, 2, 2}, {3, 4.5, 7.5, 9}));
}

TEST(ReferenceOps, GlobalAveragePoolAndReduceMean) {
  const Tensor x = tensor({1, 2, 1, 3}, {1, 2, 3, 10, 20, 60});
  expect_close(run(Op::GlobalAveragePool, {}, {x}), tensor({1, 2, 1, 1}, {2, 30}));
  expect_close(run(Op::ReduceMean, {{"axes", Ints{2, -1}}, {"keepdims", int64_t{1}}}, {x}),
               tensor({1, 2, 1, 1}, {2, 30}));
  expect_close(run(Op::ReduceMean, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}, {x}),
               tensor({1, 1, 3}, {5.5, 11, 31.5}));
}

TEST(ReferenceOps, BatchNormalizationPerChannel) {
  // Channel 0: (x - 1) * 2 / sqrt(3.75 + 0.25) + 10 = x + 9; channel 1: (x - 0) * 3 / sqrt(0 + 0.25) - 1 = 6 x - 1.
  const Tensor x = tensor({2, 2, 1, 1}, {1, 2, 3, 4});
  const Tensor y = run(Op::BatchNormalization, {{"epsilon", 0.25}},
                       {x, tensor({2}, {2, 3}), tensor({2}, {10, -1}), tensor({2}, {1, 0}), tensor({2}, {3.75, 0})});
  expect_close(y, tensor({2, 2, 1, 1}, {10, 11, 12, 23}));
}

TEST(ReferenceOps, BatchNormalizationByTheBatch) {
  // Channel 0: 1 3, mean 2, variance 1; channel 1: 2 4, mean 3, variance 1.
  const Tensor x = tensor({2, 2, 1, 1}, {1, 2, 3, 4});
  const std::vector<TensorType> operands{x.type, {DType::f32, {2}}, {DType::f32, {2}}};
  const Attrs attrs{{"epsilon", 3.0}};
  const std::vector<TensorType> types = info(Op::BatchNormalizationTraining).infer(operands, attrs).value();
  const Tensor scale = tensor({2}, {2, 4}), bias = tensor({2}, {10, -1});
  const std::vector<Tensor> made =
      evaluate_op(Op::BatchNormalizationTraining, attrs, std::vector{&x, &scale, &bias}, types);
  expect_close(made[0], tensor({2, 2, 1, 1}, {9, -3, 11, 1}));
  expect_close(made[1], tensor({2}, {2, 3}));
  expect_close(made[2], tensor({2}, {1, 1}));
}

TEST(ReferenceOps, LayerNormalizationOverTheLastAxes) {
  // Row 1 3: mean 2, variance 1; 10 30: mean 20, variance 100. Epsilon 0.
  const Tensor x = tensor({2, 2}, {1, 3, 10, 30});
  expect_close(run(Op::LayerNormalization, {{"axis", int64_t{-1}}, {"epsilon", 0.0}},
                   {x, tensor({2}, {2, 3}), tensor({2}, {0.5, 100})}),
               tensor({2, 2}, {-1.5, 103, -1.5, 103}));
  // All four: mean 11, variance (100 + 64 + 1 + 361) / 4 = 131.5, epsilon 12.5: deviation 12. Without a bias.
  expect_close(
      run(Op::LayerNormalization, {{"axis", int64_t{0}}, {"epsilon", 12.5}}, {x, tensor({2, 2}, {12, 12, 12, 24})}),
      tensor({2, 2}, {-10, -8, -1, 38}));
}

TEST(ReferenceOps, InstanceNormalizationOverEachPlane) {
  // Channel 0: mean 2, deviation sqrt(1 + 3) = 2; channel 1: mean 20, deviation sqrt(100 + 3).
  const Tensor x = tensor({1, 2, 1, 2}, {1, 3, 10, 30});
  const float tens = 10 / std::sqrt(103.0f);
  expect_close(run(Op::InstanceNormalization, {{"epsilon", 3.0}}, {x, tensor({2}, {4, 1}), tensor({2}, {1, 7})}),
               tensor({1, 2, 1, 2}, {-1, 3, 7 - tens, 7 + tens}));
}

TEST(ReferenceOps, LrnSumsNeighbouringChannels) {
  // size 3, alpha 3, so alpha / size = 1; beta 0.5, bias 4: x / sqrt(4 + sum of squares of the neighbours and itself).
  const Tensor x = tensor({1, 4, 1, 1}, {1, 2, 4, 0});
  const Attrs attrs{{"alpha", 3.0}, {"beta", 0.5}, {"bias", 4.0}, {"size", int64_t{3}}};
  expect_close(run(Op::LRN, attrs, {x}), tensor({1, 4, 1, 1}, {1.0f / 3, 0.4f, 4 / std::sqrt(24.0f), 0}));
  // An even size reaches one further behind than ahead: size 2 sees itself and the next channel.
  const Attrs even{{"alpha", 2.0}, {"beta", 0.5}, {"bias", 4.0}, {"size", int64_t{2}}};
  expect_close(run(Op::LRN, even, {x}),
               tensor({1, 4, 1, 1}, {1.0f / 3, 2 / std::sqrt(24.0f), 4 / std::sqrt(20.0f), 0}));
}

TEST(ReferenceOps, SoftmaxOverOneAxisWithoutOverflow) {
  const float big = 1000, ln3 = std::log(3.0f);
  expect_close(run(Op::Softmax, {{"axis", int64_t{-1}}}, {tensor({2, 2}, {0, ln3, big, big})}),
               tensor({2, 2}, {0.25, 0.75, 0.5, 0.5}));
  expect_close(run(Op::Softmax, {{"axis", int64_t{0}}}, {tensor({2, 2}, {0, ln3, ln3, ln3})}),
               tensor({2, 2}, {0.25, 0.5, 0.75, 0.5}));
}

TEST(ReferenceOps, ConcatTransposePadAndViews) {
  const Tensor a = tensor({2, 1}, {1, 2}), b = tensor({2, 2}, {3, 4, 5, 6});
  expect_close(run(Op::Concat, {{"axis", int64_t{1}}}, {a, b}), tensor({2, 3}, {1, 3, 4, 2, 5, 6}));
  expect_close(run(Op::Concat, {{"axis", int64_t{-2}}}, {b, b}), tensor({4, 2}, {3, 4, 5, 6, 3, 4, 5, 6}));
  // [1,2,3] to [3,1,2]: y[k,i,j] = x[i,j,k].
  expect_close(run(Op::Transpose, {{"perm", Ints{2, 0, 1}}}, {tensor({1, 2, 3}, {0, 1, 2, 10, 11, 12})}),
               tensor({3, 1, 2}, {0, 10, 1, 11, 2, 12}));
  expect_close(run(Op::Pad, {{"pads", Ints{1, 0, 0, 2}}, {"value", 7.0}}, {b}),
               tensor({3, 4}, {7, 7, 7, 7, 3, 4, 7, 7, 5, 6, 7, 7}));
  expect_close(run(Op::Reshape, {{"shape", Ints{-1}}}, {b}), tensor({4}, {3, 4, 5, 6}));
  expect_close(run(Op::Flatten, {{"axis", int64_t{0}}}, {b}), tensor({1, 4}, {3, 4, 5, 6}));
  expect_close(run(Op::Identity, {}, {b}), b);
}

TEST(ReferenceOps, EpilogueStepsTakeTheTrailingOperandsInOrder) {
  // 1x1 convolution by 2: -2 4; Mul by 3 5: -6 20; Add 1 1: -5 21; Clip to 0 … 10.
  const Tensor x = tensor({1, 1, 1, 2}, {-1, 2}), w = tensor({1, 1, 1, 1}, {2});
  const Tensor factor = tensor({1, 1, 1, 2}, {3, 5}), addend = tensor({1, 1, 1, 2}, {1, 1});
  const std::vector<EpilogueStep> steps{
      {Op::Mul, {}, {}, "mul"}, {Op::Add, {}, {}, "add"}, {Op::Clip, {}, {{"max", 10.0}, {"min", 0.0}}, "clip"}};
  const Tensor y = evaluate_op(Op::Conv, conv_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, {1, 1}, 1), steps,
                               {&x, &w, &factor, &addend}, Types(&x.type, 1))[0];
  expect_close(y, tensor({1, 1, 1, 2}, {0, 10}));
}

}  // namespace
}  // namespace nlsplit
