// random_graph(seed, size): a small valid network, another one for every seed, for property and differential tests.
//
//   Model model = random_graph(seed, 8);      // a body of about 8 nodes, then a classifier
//
// It has one image as input (batch 1), for every sixth seed a sequence [1, C, L] with windows over one axis, and one
// output, keeps samples apart (with_batch works), every node contributes to the output, and its activations stay near 1
// in magnitude. There are skip connections that span several nodes, two-way branches that end in Add or Concat,
// squeeze-and-excite gates (a broadcast Mul), grouped, depthwise, strided and dilated convolutions, uneven padding,
// both pools with their modes, BatchNormalization, LRN, all unary activations, and a head of Gemm, MatMul, Softmax or
// none.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/weights.h"

namespace nlsplit {

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, int size)
      : random_(seed), size_(size), spatial_(seed % 6 == 5 ? 1 : 2), builder_("random" + std::to_string(seed)) {}

  Model build() && {
    Shape image{1, pick({1, 3, 4, 8}), between(5, 12), between(5, 12)};
    if (spatial_ == 1) image = {1, image[1], image[2] * image[3]};
    ValueId x = builder_.input("input", {DType::f32, image});
    while (static_cast<int>(builder_.graph().nodes.size()) < size_) {
      earlier_.push_back(x);
      x = step(x);
    }
    builder_.output(head(x));
    return {std::move(builder_).finish(), std::move(weights_)};
  }

 private:
  using Ints = std::vector<int64_t>;

  bool chance(double p) { return random_.uniform() < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  int64_t pick(const Ints& from) { return from[random_.below(from.size())]; }
  Ints of_axes(int64_t height, int64_t width) const { return spatial_ == 1 ? Ints{width} : Ints{height, width}; }
  const Shape& shape(ValueId x) const { return builder_.type(x).shape; }

  ValueId node(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    const std::string name = std::string(name_of(op)) + std::to_string(builder_.graph().nodes.size());
    return builder_.add(op, name, std::move(inputs), std::move(attrs)).value();
  }
  ValueId weight(Shape shape, double deviation, double mean = 0) {
    const TensorType type{DType::f32, std::move(shape)};
    const ContentId content =
        weights_.add_random(type, random_.next(), static_cast<float>(deviation), static_cast<float>(mean));
    return builder_.weight("w" + std::to_string(builder_.graph().values.size()), type, content);
  }

  ValueId step(ValueId x) {
    switch (random_.below(12)) {
      case 0:
      case 1:
        return conv(x);
      case 2:
        return activation(conv(x));
      case 3:
        return activation(batch_norm(conv(x)));
      case 4:
        return chance(0.5) ? batch_norm(x) : lrn(x);
      case 5:
        return activation(x);
      case 6:
        return pool(x);
      case 7:
        return skip(x);
      case 8:
        return branches(x);
      case 9:
        return gate(x);
      case 10:
        return conv(activation(batch_norm(x)));
      default:
        return chance(0.5) ? activation(skip(batch_norm(conv(x)))) : pad(x);
    }
  }

  // `same`: keeps the shape, whatever x is.
  ValueId conv(ValueId x, bool same = false) {
    const Shape in = shape(x);
    const int64_t group = pick({1, 1, 1, in[1], in[1] % 2 == 0 ? 2 : 1});
    const int64_t channels = same ? in[1] : group * std::max<int64_t>(1, pick({2, 4, 6, 8, 16}) / group);
    const int64_t kernel_h = same ? pick({1, 3}) : pick({1, 2, 3, 3, 5}),
                  kernel_w = chance(0.8) || same ? kernel_h : pick({1, 3});
    const Ints kernel = of_axes(kernel_h, kernel_w);
    Ints pads(2 * spatial_, 0), strides(spatial_, 1), dilations(spatial_, 1);
    for (size_t axis = 0; axis < spatial_; ++axis) {
      if (!same && chance(0.25)) strides[axis] = 2;
      if (!same && chance(0.15)) dilations[axis] = 2;
      const int64_t reach = (kernel[axis] - 1) * dilations[axis] + 1;
      pads[axis] = same || chance(0.7) ? reach / 2 : between(0, 2);
      pads[axis + spatial_] = same || chance(0.7) ? reach / 2 : between(0, 2);
      const int64_t lack = reach - (in[axis + 2] + pads[axis] + pads[axis + spatial_]);
      if (lack > 0) pads[axis] += lack;
    }
    Shape filters{channels, in[1] / group};
    filters.insert(filters.end(), kernel.begin(), kernel.end());
    const int64_t fan_in = element_count(filters) / channels;
    std::vector<ValueId> inputs{x, weight(filters, std::sqrt(1.5 / static_cast<double>(fan_in)))};
    if (chance(0.6)) inputs.push_back(weight({channels}, 0.2));
    return node(
        Op::Conv, std::move(inputs),
        {{"dilations", dilations}, {"group", group}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}});
  }

  ValueId batch_norm(ValueId x) {
    const Shape channels{shape(x)[1]};
    const ValueId scale = weight(channels, 0.1, 1), bias = weight(channels, 0.2);
    const ValueId mean = weight(channels, 0.2), variance = weight(channels, 0.1, 1);
    return node(Op::BatchNormalization, {x, scale, bias, mean, variance}, {{"epsilon", 1e-5}});
  }

  ValueId lrn(ValueId x) {
    return node(Op::LRN, {x}, {{"alpha", 0.3}, {"beta", 0.75}, {"bias", 1.0}, {"size", between(1, 5)}});
  }

  ValueId activation(ValueId x) {
    switch (random_.below(10)) {
      case 0:
        return node(Op::LeakyRelu, {x}, {{"alpha", 0.125}});
      case 1:
        return node(Op::Clip, {x}, {{"max", 6.0}, {"min", 0.0}});
      case 2:
        return node(Op::HardSwish, {x});
      case 3:
        return node(Op::Sigmoid, {x});
      case 4:
        return node(Op::Tanh, {x});
      case 5:
        return node(Op::HardSigmoid, {x}, {{"alpha", 0.2}, {"beta", 0.5}});
      default:
        return node(Op::Relu, {x});
    }
  }

  ValueId pool(ValueId x) {
    const Shape in = shape(x);
    Ints kernel(spatial_, 0), pads(2 * spatial_, 0), strides(spatial_, 1);
    for (size_t axis = 0; axis < spatial_; ++axis) {
      kernel[axis] = std::min(between(2, 3), in[axis + 2]);
      strides[axis] = in[axis + 2] > 4 ? between(1, 2) : 1;
      if (kernel[axis] > 1 && chance(0.5)) pads[axis] = 1;
      if (kernel[axis] > 1 && chance(0.5)) pads[axis + spatial_] = 1;
    }
    Attrs attrs{{"ceil_mode", between(0, 1)}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
    if (chance(0.5)) {
      set_attr(attrs, "count_include_pad", between(0, 1));
      return node(Op::AveragePool, {x}, std::move(attrs));
    }
    set_attr(attrs, "dilations", Ints(spatial_, 1));
    return node(Op::MaxPool, {x}, std::move(attrs));
  }

  // Adds (or subtracts) any earlier value of the same shape; where there is none, one made from x.
  ValueId skip(ValueId x) {
    std::vector<ValueId> fitting;
    for (ValueId value : earlier_) {
      if (shape(value) == shape(x) && value != x) fitting.push_back(value);
    }
    const ValueId other = fitting.empty() ? conv(x, true) : fitting[random_.below(fitting.size())];
    constexpr Op ops[] = {Op::Add, Op::Add, Op::Add, Op::Sum, Op::Sub};
    return node(ops[random_.below(std::size(ops))], {x, other});
  }

  ValueId branches(ValueId x) {
    const ValueId left = activation(conv(x, true));
    const ValueId right = chance(0.5) ? conv(x, true) : x;
    if (chance(0.5)) return node(Op::Add, {left, right});
    return node(Op::Concat, {left, right}, {{"axis", int64_t{1}}});
  }

  ValueId gate(ValueId x) {
    const int64_t channels = shape(x)[1];
    const Attrs over_the_image{{"axes", spatial_ == 1 ? Ints{2} : Ints{2, 3}}, {"keepdims", int64_t{1}}};
    const bool pooled = chance(0.5);
    const ValueId mean = node(pooled ? Op::GlobalAveragePool : Op::ReduceMean, {x}, pooled ? Attrs{} : over_the_image);
    Shape filters(2 + spatial_, 1);
    filters[0] = filters[1] = channels;
    const ValueId w = weight(filters, 1 / std::sqrt(static_cast<double>(channels)));
    const ValueId y = node(Op::Conv, {mean, w},
                           {{"dilations", Ints(spatial_, 1)},
                            {"group", int64_t{1}},
                            {"kernel_shape", Ints(spatial_, 1)},
                            {"pads", Ints(2 * spatial_, 0)},
                            {"strides", Ints(spatial_, 1)}});
    return node(Op::Mul, {x, node(Op::Sigmoid, {y})});
  }

  ValueId pad(ValueId x) {
    Ints pads{0, 0, between(0, 1), between(0, 2), 0, 0, between(0, 1), 1};
    if (spatial_ == 1) pads = {0, 0, pads[3], 0, 0, 1};
    return node(Op::Pad, {x}, {{"pads", pads}, {"value", 0.0}});
  }

  ValueId head(ValueId x) {
    if (chance(0.2)) return x;
    if (chance(0.5)) x = node(Op::GlobalAveragePool, {x});
    if (chance(0.7)) {
      x = node(Op::Flatten, {x}, {{"axis", int64_t{1}}});
    } else {
      x = node(Op::Reshape, {x}, {{"shape", Ints{0, -1}}});
    }
    const int layers = static_cast<int>(between(1, 2));
    for (int i = 0; i < layers; ++i) {
      if (i > 0) x = activation(x);
      const int64_t in = shape(x)[1], out = between(3, 12);
      const double deviation = 1 / std::sqrt(static_cast<double>(in));
      if (chance(0.3)) {
        x = node(Op::Add, {node(Op::MatMul, {x, weight({in, out}, deviation)}), weight({out}, 0.2)});
      } else {
        const int64_t transposed = between(0, 1);
        const ValueId w = weight(transposed ? Shape{out, in} : Shape{in, out}, deviation);
        std::vector<ValueId> inputs{x, w};
        if (chance(0.7)) inputs.push_back(weight({out}, 0.2));
        x = node(Op::Gemm, std::move(inputs),
                 {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", transposed}});
      }
    }
    return chance(0.5) ? node(Op::Softmax, {x}, {{"axis", int64_t{1}}}) : x;
  }

  Random random_;
  int size_;
  size_t spatial_;
  GraphBuilder builder_;
  WeightStore weights_;
  std::vector<ValueId> earlier_;
};

inline Model random_graph(uint64_t seed, int size) { return RandomGraph(seed, size).build(); }

}  // namespace nlsplit
