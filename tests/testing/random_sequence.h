// random_sequence(seed, size): a small network over a sequence, as exporters write transformers: normalizations, Gelu
// and softmax in their parts, biases added behind products, reshapes and transposes to and fro, the same thing computed
// twice, a normalization in front of a convolution. Another one for every seed, for tests of the passes.
//
//   Model model = random_sequence(seed, 10);      // about 10 steps of a few nodes each
//
// One input [1, steps, features] and one output; samples stay apart (with_batch works); values stay near 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/weights.h"

namespace nlsplit {

class RandomSequence {
 public:
  RandomSequence(uint64_t seed, int size) : random_(seed), size_(size), builder_("sequence" + std::to_string(seed)) {}

  Model build() && {
    ValueId x = builder_.input("input", {DType::f32, {1, between(2, 6), between(3, 9)}});
    for (int i = 0; i < size_; ++i) {
      earlier_.push_back(x);
      x = step(x);
    }
    builder_.output(node(Op::Tanh, {x}));
    return {std::move(builder_).finish(), std::move(weights_)};
  }

 private:
  using Ints = std::vector<int64_t>;

  bool chance(double p) { return random_.uniform() < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  const Shape& shape(ValueId x) const { return builder_.type(x).shape; }

  ValueId node(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    const std::string name = std::string(name_of(op)) + std::to_string(builder_.graph().nodes.size());
    return builder_.add(op, name, std::move(inputs), std::move(attrs)).value();
  }
  // Either way round.
  ValueId either(Op op, ValueId a, ValueId b) { return chance(0.5) ? node(op, {a, b}) : node(op, {b, a}); }
  std::string weight_name() const { return "w" + std::to_string(builder_.graph().values.size()); }
  ValueId weight(Shape shape, double deviation, double mean = 0) {
    const TensorType type{DType::f32, std::move(shape)};
    return builder_.weight(
        weight_name(), type,
        weights_.add_random(type, random_.next(), static_cast<float>(deviation), static_cast<float>(mean)));
  }
  ValueId number(double value) {
    const TensorType type{DType::f32, chance(0.5) ? Shape{} : Shape{1}};
    return builder_.weight(weight_name(), type, weights_.add_fill(type, value));
  }
  // [n], or with axes of extent 1 in front.
  Shape row(int64_t n) { return chance(0.6) ? Shape{n} : Shape{1, 1, n}; }

  ValueId step(ValueId x) {
    switch (random_.below(11)) {
      case 0:
        return linear(x, between(3, 9));
      case 1:
        return gelu(linear(x, between(3, 9)));
      case 2:
        return layer_norm(x);
      case 3:
        return layer_norm(attention(x));
      case 4:
        return softmax(x, chance(0.7) ? -1 : 1);
      case 5:
        return turned(x);
      case 6:
        return reshaped(x);
      case 7:
        return twice(x);
      case 8:
        return convolution(x);
      case 9:
        return skip(x);
      default:
        return nothing(activation(x));
    }
  }

  ValueId linear(ValueId x, int64_t out) {
    const int64_t in = shape(x)[2];
    const ValueId product = node(Op::MatMul, {x, weight({in, out}, 1 / std::sqrt(static_cast<double>(in)))});
    return either(Op::Add, product, weight(row(out), 0.3));
  }

  ValueId activation(ValueId x) {
    constexpr Op ops[] = {Op::Relu, Op::Tanh, Op::Sigmoid, Op::HardSwish, Op::Softplus};
    return node(ops[random_.below(std::size(ops))], {x});
  }

  ValueId gelu(ValueId x) {
    ValueId curve;
    if (chance(0.5)) {
      curve = node(Op::Erf, {chance(0.5) ? node(Op::Div, {x, number(std::numbers::sqrt2)})
                                         : either(Op::Mul, x, number(std::sqrt(0.5)))});
    } else {
      const ValueId cube = chance(0.5) ? node(Op::Pow, {x, number(3)}) : either(Op::Mul, node(Op::Mul, {x, x}), x);
      const ValueId sum = either(Op::Add, x, either(Op::Mul, cube, number(0.044715)));
      curve = node(Op::Tanh, {either(Op::Mul, sum, number(std::sqrt(2 / std::numbers::pi)))});
    }
    const ValueId above = either(Op::Add, curve, number(1));
    switch (random_.below(3)) {
      case 0:
        return either(Op::Mul, either(Op::Mul, x, above), number(0.5));
      case 1:
        return either(Op::Mul, either(Op::Mul, x, number(0.5)), above);
      default:
        return either(Op::Mul, x, either(Op::Mul, above, number(0.5)));
    }
  }

  ValueId layer_norm(ValueId x) {
    const int64_t features = shape(x)[2];
    const Attrs last{{"axes", Ints{chance(0.5) ? 2 : -1}}, {"keepdims", int64_t{1}}};
    const ValueId apart = node(Op::Sub, {x, node(Op::ReduceMean, {x}, last)});
    const ValueId square = chance(0.5) ? node(Op::Pow, {apart, number(2)}) : node(Op::Mul, {apart, apart});
    const ValueId root = node(Op::Sqrt, {either(Op::Add, node(Op::ReduceMean, {square}, last), number(0.1))});
    ValueId y = chance(0.7) ? node(Op::Div, {apart, root}) : either(Op::Mul, apart, node(Op::Reciprocal, {root}));
    if (chance(0.3)) return y;
    y = either(Op::Mul, y, weight(row(features), 0.2, 1));
    return chance(0.8) ? either(Op::Add, y, weight(row(features), 0.3)) : y;
  }

  ValueId softmax(ValueId x, int64_t axis) {
    const Attrs along{{"axes", Ints{axis}}, {"keepdims", int64_t{1}}};
    const ValueId exp = node(Op::Exp, {node(Op::Sub, {x, node(Op::ReduceMax, {x}, along)})});
    return node(Op::Div, {exp, node(Op::ReduceSum, {exp}, along)});
  }

  ValueId turn(ValueId x) { return node(Op::Transpose, {x}, {{"perm", Ints{0, 2, 1}}}); }

  ValueId attention(ValueId x) {
    const int64_t features = shape(x)[2];
    const ValueId q = linear(x, features), k = linear(x, features), v = linear(x, features);
    const ValueId scores =
        either(Op::Mul, node(Op::MatMul, {q, turn(k)}), number(1 / std::sqrt(static_cast<double>(features))));
    return either(Op::Add, x, node(Op::MatMul, {softmax(scores, -1), v}));
  }

  // Steps between two transposes.
  ValueId turned(ValueId x) {
    const int64_t steps = shape(x)[1];
    ValueId y = activation(turn(x));
    if (chance(0.5)) y = either(Op::Mul, y, number(0.7));
    if (chance(0.5)) y = either(Op::Add, y, weight({steps}, 0.3));
    if (chance(0.5)) y = node(Op::Sub, {y, activation(turn(linear(x, shape(x)[2])))});
    return turn(y);
  }

  ValueId reshaped(ValueId x) {
    const Shape as = shape(x);
    const ValueId flat =
        chance(0.5) ? node(Op::Flatten, {x}, {{"axis", int64_t{1}}}) : node(Op::Reshape, {x}, {{"shape", Ints{0, -1}}});
    const bool swapped = chance(0.5);
    return node(Op::Reshape, {flat}, {{"shape", swapped ? Ints{0, as[2], as[1]} : Ints{0, as[1], as[2]}}});
  }

  ValueId twice(ValueId x) {
    const Op op = chance(0.5) ? Op::Tanh : Op::Sigmoid;
    const ValueId a = node(op, {x}), b = node(op, {x});
    return node(chance(0.5) ? Op::Add : Op::Mul, {node(Op::Relu, {a}), node(Op::HardSwish, {b})});
  }

  // The steps are channels, the features an image of one row.
  ValueId convolution(ValueId x) {
    const Shape as = shape(x);
    const ValueId image = node(Op::Reshape, {x}, {{"shape", Ints{0, as[1], 1, as[2]}}});
    const Shape channels{as[1]};
    const ValueId scale = weight(channels, 0.2, 1), bias = weight(channels, 0.3), mean = weight(channels, 0.3);
    const ValueId norm =
        node(Op::BatchNormalization, {image, scale, bias, mean, weight(channels, 0.1, 1)}, {{"epsilon", 1e-3}});
    const int64_t filters = between(2, 6), taps = std::min(between(1, 2), as[2]);
    std::vector<ValueId> inputs{norm,
                                weight({filters, as[1], 1, taps}, 1 / std::sqrt(static_cast<double>(as[1] * taps)))};
    if (chance(0.5)) inputs.push_back(weight({filters}, 0.3));
    const ValueId y = node(Op::Conv, std::move(inputs),
                           {{"dilations", Ints{1, 1}},
                            {"group", int64_t{1}},
                            {"kernel_shape", Ints{1, taps}},
                            {"pads", Ints{0, 0, 0, 0}},
                            {"strides", Ints{1, 1}}});
    return node(Op::Reshape, {y}, {{"shape", Ints{0, filters, -1}}});
  }

  ValueId skip(ValueId x) {
    for (size_t i = earlier_.size(); i-- > 0;) {
      if (earlier_[i] != x && shape(earlier_[i]) == shape(x)) return either(Op::Add, x, earlier_[i]);
    }
    return activation(x);
  }

  ValueId nothing(ValueId x) {
    switch (random_.below(4)) {
      case 0:
        return node(Op::Cast, {x}, {{"to", std::string("f32")}});
      case 1:
        return node(Op::Identity, {x});
      case 2:
        return node(Op::Slice, {x}, {{"axes", Ints{1}}, {"ends", Ints{100}}, {"starts", Ints{0}}, {"steps", Ints{1}}});
      default:
        return x;
    }
  }

  Random random_;
  int size_;
  GraphBuilder builder_;
  WeightStore weights_;
  std::vector<ValueId> earlier_;
};

inline Model random_sequence(uint64_t seed, int size) { return RandomSequence(seed, size).build(); }

}  // namespace nlsplit
