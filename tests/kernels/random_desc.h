// Random computations of one operator: shapes small enough to be quick and uneven enough to leave every kind of
// remainder.
//
//   Random random(7);
//   std::optional<ComputeDesc> desc = random_desc(Op::Conv, random);   // none: this draw is not a valid one
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/optimizer.h"
#include "kernels/catalogue.h"

namespace nlsplit::testing {

class RandomDesc {
 public:
  RandomDesc(Op op, Random& random) : op_(op), random_(random) {}

  std::optional<ComputeDesc> draw() {
    fill();
    desc_.op = op_;
    if (is_of_images() && chance(0.25)) drop_height();
    auto types = info(op_).infer(desc_.inputs, desc_.attrs);
    if (!types.ok()) return std::nullopt;
    desc_.outputs = *types;
    for (uint64_t steps = desc_.outputs.size() == 1 && chance(0.5) ? below(4) : 0; steps > 0; --steps) step();
    return desc_;
  }

 private:
  using Ints = std::vector<int64_t>;
  uint64_t below(uint64_t n) { return random_.below(n); }
  bool chance(double p) { return random_.uniform() < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  int64_t pick(const Ints& from) { return from[below(from.size())]; }
  void input(Shape shape, bool weight = false) {
    if (weight) desc_.weights |= uint64_t{1} << desc_.inputs.size();
    desc_.inputs.push_back({DType::f32, std::move(shape)});
  }
  Shape any_shape(int64_t axes) {
    Shape shape;
    for (int64_t i = 0; i < axes; ++i) shape.push_back(between(1, i + 1 == axes ? 40 : 6));
    return shape;
  }
  Shape image() { return {between(1, 3), pick({1, 5, 8, 16, 23, 40}), between(1, 6), between(1, 20)}; }
  bool is_of_images() const {
    switch (op_) {
      case Op::Conv:
      case Op::ConvTranspose:
      case Op::ConvWeightGradient:
      case Op::MaxPool:
      case Op::MaxPoolGradient:
      case Op::AveragePool:
      case Op::AveragePoolGradient:
      case Op::GlobalAveragePool:
      case Op::BatchNormalization:
      case Op::BatchNormalizationTraining:
      case Op::BatchNormalizationTrainingGradient:
      case Op::BatchNormalizationScaleGradient:
      case Op::InstanceNormalization:
      case Op::LRN:
        return true;
      default:
        return false;
    }
  }
  // The same over one axis, the width.
  void drop_height() {
    for (TensorType& type : desc_.inputs) {
      if (type.shape.size() == 4) type.shape.erase(type.shape.begin() + 2);
    }
    for (const char* name : {"dilations", "extents", "kernel_shape", "output_padding", "pads", "strides"}) {
      if (find_attr(desc_.attrs, name) == nullptr) continue;
      Ints list = attr_ints(desc_.attrs, name);
      if (list.size() == 4) list.erase(list.begin() + 2);
      list.erase(list.begin());
      set_attr(desc_.attrs, name, list);
    }
  }
  // Each axis as it is or 1, some leading ones left out.
  Shape broadcastable(Shape shape) {
    for (int64_t& extent : shape) extent = chance(0.3) ? 1 : extent;
    shape.erase(shape.begin(), shape.begin() + (chance(0.3) ? between(0, static_cast<int64_t>(shape.size())) : 0));
    return shape;
  }

  void step() {
    static const Op steps[] = {Op::Relu, Op::Clip,      Op::Sigmoid, Op::HardSigmoid, Op::HardSwish,
                               Op::Tanh, Op::LeakyRelu, Op::Add,     Op::Mul};
    const Op op = steps[below(std::size(steps))];
    desc_.epilogue.push_back({op, unary_attrs(op)});
    if (has(op, traits::is_step_with_operand)) desc_.inputs.push_back(desc_.outputs[0]);
  }
  static Attrs unary_attrs(Op op) {
    switch (op) {
      case Op::Clip:
        return {{"max", 0.75}, {"min", -0.5}};
      case Op::LeakyRelu:
        return {{"alpha", 0.125}};
      case Op::HardSigmoid:
        return {{"alpha", 0.25}, {"beta", 0.5}};
      case Op::Gelu:
        return {{"approximate", std::string("none")}};
      default:
        return {};
    }
  }

  Ints window_pads(const Ints& kernel) {
    Ints pads(4);
    for (size_t i = 0; i < 4; ++i) pads[i] = between(0, kernel[i % 2] - 1);
    return chance(0.3) ? Ints(4, 0) : pads;
  }

  void conv() {
    const bool depthwise = chance(0.25), pointwise = chance(0.25);
    const int64_t group = depthwise ? between(1, 9) : pick({1, 1, 1, 2, 3});
    const int64_t per_group = depthwise ? 1 : pick({1, 2, 3, 7, 32, 70});
    const int64_t filters = group * (depthwise ? pick({1, 1, 2}) : pick({1, 3, 8, 15, 16, 17, 33, 64}));
    const bool usual = chance(0.3);  // 3x3, and large enough for Winograd
    const Ints kernel = pointwise ? Ints{1, 1} : usual ? Ints{3, 3} : Ints{between(1, 4), between(1, 4)};
    const Ints pads = pointwise && chance(0.7) ? Ints(4, 0) : window_pads(kernel);
    const bool unit = usual || chance(0.5) || (pointwise && chance(0.7));
    const Ints strides = unit ? Ints{1, 1} : Ints{between(1, 3), between(1, 3)};
    const Ints dilations = usual || chance(0.7) ? Ints{1, 1} : Ints{between(1, 2), between(1, 3)};
    input({between(1, 2), group * per_group, between(usual ? 10 : 1, 18), between(usual ? 10 : 1, 31)});
    input({filters, per_group, kernel[0], kernel[1]}, chance(0.7));
    if (chance(0.6)) input({filters}, true);
    desc_.attrs = {
        {"dilations", dilations}, {"group", group}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
  }

  void conv_transpose() {
    const int64_t group = pick({1, 1, 1, 2, 3}), per_group = pick({1, 2, 7, 33}), filters = pick({1, 3, 8, 17, 70});
    const bool usual = chance(0.2);  // 3x3 and not strided
    const Ints kernel = usual ? Ints{3, 3} : Ints{between(1, 4), between(1, 4)};
    const Ints strides = usual ? Ints{1, 1} : Ints{between(1, 3), between(1, 3)};
    const Ints dilations = usual ? Ints{1, 1} : Ints{between(1, 2), between(1, 2)};
    input({between(1, 2), group * per_group, between(1, 9), between(1, 21)});
    input({group * per_group, filters, kernel[0], kernel[1]}, chance(0.6));
    if (chance(0.6)) input({group * filters}, true);
    desc_.attrs = {
        {"dilations", dilations},      {"group", group},
        {"kernel_shape", kernel},      {"output_padding", usual ? Ints{0, 0} : Ints{between(0, 2), between(0, 2)}},
        {"pads", window_pads(kernel)}, {"strides", strides}};
  }

  void pool() {
    const Ints kernel{between(1, 4), between(1, 4)};
    desc_.attrs = {{"ceil_mode", between(0, 1)},
                   {"kernel_shape", kernel},
                   {"pads", window_pads(kernel)},
                   {"strides", Ints{between(1, 3), between(1, 3)}}};
    if (op_ == Op::MaxPool) set_attr(desc_.attrs, "dilations", Ints{between(1, 2), between(1, 2)});
    if (op_ == Op::AveragePool) set_attr(desc_.attrs, "count_include_pad", between(0, 1));
    input({between(1, 2), pick({1, 2, 3, 20}), between(2, 17), between(2, 45)});
  }

  // Of a convolution that is drawn first.
  void conv_weight_gradient() {
    conv();
    const auto made = info(Op::Conv).infer(desc_.inputs, desc_.attrs);
    desc_.weights = 0;
    desc_.inputs.resize(1);
    input(made.ok() ? (*made)[0].shape : Shape{});
  }

  void pool_gradient() {
    const bool largest = op_ == Op::MaxPoolGradient;
    op_ = largest ? Op::MaxPool : Op::AveragePool;
    pool();
    const auto made = info(op_).infer(desc_.inputs, desc_.attrs);
    op_ = largest ? Op::MaxPoolGradient : Op::AveragePoolGradient;
    const Shape x = desc_.inputs[0].shape;
    desc_.inputs.clear();
    input(made.ok() ? (*made)[0].shape : Shape{});
    if (largest) return input(x);
    set_attr(desc_.attrs, "extents", Ints(x.begin() + 2, x.end()));
  }

  Attrs gradient_attrs() {
    switch (op_) {
      case Op::LeakyReluGradient:
      case Op::HardSigmoidGradient:
        return {{"alpha", 0.25}};
      case Op::ClipGradient:
        return {{"max", 0.75}, {"min", -0.5}};
      case Op::GeluGradient:
        return {{"approximate", std::string(chance(0.5) ? "tanh" : "none")}};
      default:
        return {};
    }
  }

  void gemm() {
    const int64_t m = pick({1, 1, 2, 5, 6, 14, 15, 29, 300}), n = pick({1, 3, 10, 16, 31, 32, 33, 100, 400}),
                  k = pick({1, 2, 9, 64, 257, 600});
    const bool trans_a = chance(0.3), trans_b = chance(0.5), scaled = chance(0.3);
    desc_.attrs = {{"alpha", scaled ? 0.5 : 1.0},
                   {"beta", scaled ? -2.0 : 1.0},
                   {"transA", int64_t{trans_a}},
                   {"transB", int64_t{trans_b}}};
    input(trans_a ? Shape{k, m} : Shape{m, k});
    input(trans_b ? Shape{n, k} : Shape{k, n}, chance(0.6));
    const Shape addends[] = {{n}, {n}, {1, n}, {m, 1}, {m, n}, {1}, {}};
    if (chance(0.8)) input(addends[below(std::size(addends))], true);
  }

  void matmul() {
    const int64_t m = pick({1, 4, 17}), n = pick({1, 20, 35, 64}), k = pick({1, 5, 30, 270});
    const Shape batch = any_shape(between(0, 2));
    Shape a = broadcastable(batch), b = chance(0.4) ? Shape{} : broadcastable(batch);
    const bool vector_a = a.empty() && chance(0.2), vector_b = b.empty() && chance(0.2);
    if (!vector_a) a.push_back(m);
    a.push_back(k);
    b.push_back(k);
    if (!vector_b) b.push_back(n);
    input(a);
    input(b, chance(0.5));
    if (!vector_b && chance(0.4)) input({n}, true);
  }

  void linear() {
    const int64_t n = pick({1, 3, 4, 10, 33}), k = pick({1, 15, 32, 70, 270});
    Shape x = any_shape(between(0, 2));
    if (chance(0.8)) x.push_back(pick({1, 2, 3, 4, 7, 9}));
    x.push_back(k);
    input(x);
    input({n, k}, chance(0.7));
    if (chance(0.4)) input({n}, true);
  }

  // Some of the experts are elsewhere.
  void experts() {
    const int64_t here = between(1, 5), first = between(0, 2), all = first + here + between(0, 2),
                  used = between(1, all), hidden = pick({1, 15, 32, 70}), width = pick({1, 16, 33, 96});
    Shape x = any_shape(between(0, 1));
    if (chance(0.9)) x.push_back(pick({1, 2, 3, 9}));
    Shape chosen = x;
    x.push_back(hidden);
    chosen.push_back(used);
    desc_.attrs = {{"all", all}, {"first", first}};
    input(x);
    desc_.inputs.push_back({chance(0.7) ? DType::i64 : DType::i32, chosen});
    input(chosen);
    const bool weights = chance(0.8);
    input({here, width, hidden}, weights);
    input({here, width, hidden}, weights);
    input({here, hidden, width}, weights);
  }

  void recurrent(int64_t gates, size_t states) {
    const int64_t batch = pick({1, 1, 2, 5, 17}), steps = pick({1, 2, 3, 7, 40}), in = pick({1, 3, 16, 37}),
                  hidden = pick({1, 8, 20, 33, 64, 130});
    const char* directions[] = {"forward", "reverse", "bidirectional"};
    const size_t direction = below(3);
    const int64_t d = direction == 2 ? 2 : 1;
    const bool weights = chance(0.7);
    desc_.attrs = {{"direction", std::string(directions[direction])}};
    if (op_ == Op::GRU) set_attr(desc_.attrs, "linear_before_reset", between(0, 1));
    input({batch, steps, in});
    input({d, gates * hidden, in}, weights);
    input({d, gates * hidden, hidden}, weights);
    input({d, 2 * gates * hidden}, true);
    // Each sample's own initial states, or constant ones for all; peepholes behind them.
    const size_t optional = below(states + (op_ == Op::LSTM ? 2 : 1));
    for (size_t i = 0; i < std::min(optional, states); ++i) {
      const bool shared = chance(0.3);
      input({shared ? 1 : batch, d, hidden}, shared);
    }
    if (optional > states) input({d, 3 * hidden}, true);
  }

  void attention() {
    const int64_t batch = between(1, 2), kv_heads = between(1, 2), heads = kv_heads * pick({1, 1, 2}),
                  keys = pick({1, 7, 33, 64, 300}), queries = chance(0.4) ? keys : pick({1, 5, 60}),
                  size = pick({1, 8, 20, 64}), width = pick({1, 16, 20, 33, 64});
    const bool causal = keys >= queries && chance(0.4);
    desc_.attrs = {{"causal", int64_t{causal}},
                   {"scale", chance(0.2) ? 1.0 : 1 / std::sqrt(static_cast<double>(size))}};
    input({batch, heads, queries, size});
    input({batch, kv_heads, keys, size});
    input({batch, kv_heads, keys, width});
    if (chance(0.5)) return;
    Shape mask{batch, heads, queries, keys};
    for (size_t axis = 0; axis < 3; ++axis) mask[axis] = chance(0.4) ? 1 : mask[axis];
    mask.erase(mask.begin(), mask.begin() + (chance(0.4) ? between(0, 3) : 0));
    input(mask);
  }

  // Attention's, behind a cache in one piece or in pages.
  void cached(bool paged) {
    attention();
    const int64_t batch = desc_.inputs[0].shape[0], keys = desc_.inputs[1].shape[2];
    const bool windowed = attr_int(desc_.attrs, "causal") != 0 && chance(0.5);
    set_attr(desc_.attrs, "softcap", chance(0.3) ? 1.5 : 0.0);
    set_attr(desc_.attrs, "window", windowed ? pick({1, 5, 40, 200}) : int64_t{0});
    const TensorType lengths{chance(0.5) ? DType::i64 : DType::i32, {batch}};
    if (!paged) {
      desc_.inputs.insert(desc_.inputs.begin() + 3, lengths);
      return;
    }
    const int64_t page = pick({1, 3, 16, 40}), count = (keys + page - 1) / page;
    desc_.inputs.resize(3);
    for (const size_t i : {1, 2}) {
      desc_.inputs[i].shape[0] = between(1, 2 * batch * count);
      desc_.inputs[i].shape[2] = page;
    }
    desc_.inputs[2].shape[0] = desc_.inputs[1].shape[0];
    desc_.inputs.push_back(lengths);
    desc_.inputs.push_back({DType::i64, {batch, count}});
  }

  // More positions than steps; begins are any of those that fit, or of some that do not.
  void rotary() {
    const Shape x{between(1, 3), between(1, 4), between(1, 9), 2 * between(1, 40)};
    const Shape table{x[2] + between(0, 12), x[3] / 2};
    input(x);
    input(table);
    input(table);
    desc_.inputs.push_back({chance(0.5) ? DType::i64 : DType::i32, {x[0]}});
  }

  // Channels from where a block of some level begins, or from anywhere.
  void slice(const Shape& shape) {
    Ints which, starts, ends;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (chance(0.4)) continue;
      int64_t start = between(0, shape[axis] - 1);
      if (axis == 1 && chance(0.7)) start = start / 16 * 16;
      which.push_back(static_cast<int64_t>(axis));
      ends.push_back(between(start + 1, shape[axis] + 1));
      starts.push_back(chance(0.3) ? start - shape[axis] : start);
    }
    desc_.attrs = {{"axes", which}, {"ends", ends}, {"starts", starts}, {"steps", Ints(which.size(), 1)}};
    input(shape);
  }

  void fill() {
    const int64_t axes = between(1, 4);
    switch (op_) {
      case Op::Conv:
        return conv();
      case Op::ConvTranspose:
        return conv_transpose();
      case Op::MaxPool:
      case Op::AveragePool:
        return pool();
      case Op::Gemm:
        return gemm();
      case Op::MatMul:
        return matmul();
      case Op::Linear:
        return linear();
      case Op::Experts:
        return experts();
      case Op::LSTM:
        return recurrent(4, 2);
      case Op::GRU:
        return recurrent(3, 1);
      case Op::RNN:
        return recurrent(1, 1);
      case Op::GlobalAveragePool:
        return input(image());
      case Op::ConvWeightGradient:
        return conv_weight_gradient();
      case Op::MaxPoolGradient:
      case Op::AveragePoolGradient:
        return pool_gradient();
      case Op::ReluGradient:
      case Op::SigmoidGradient:
      case Op::TanhGradient:
      case Op::HardSwishGradient:
      case Op::ErfGradient:
      case Op::LeakyReluGradient:
      case Op::HardSigmoidGradient:
      case Op::ClipGradient:
      case Op::GeluGradient: {
        const Shape shape = any_shape(axes);
        input(shape);
        desc_.attrs = gradient_attrs();
        return input(shape);
      }
      case Op::SoftmaxGradient:
      case Op::LogSoftmaxGradient: {
        const Shape shape = any_shape(axes);
        desc_.attrs = {{"axis", chance(0.5) ? axes - 1 : between(0, axes - 1)}};
        input(shape);
        return input(shape);
      }
      case Op::BatchNormalizationTraining: {
        const Shape shape = image();
        input(shape);
        for (int i = 0; i < 2; ++i) input({shape[1]}, true);
        desc_.attrs = {{"epsilon", 1e-3}};
        return;
      }
      case Op::BatchNormalizationTrainingGradient: {
        const Shape shape = image();
        for (int i = 0; i < 2; ++i) input(shape);
        for (int i = 0; i < 3; ++i) input({shape[1]}, true);
        desc_.attrs = {{"epsilon", 1e-3}};
        return;
      }
      case Op::BatchNormalizationScaleGradient: {
        const Shape shape = image();
        for (int i = 0; i < 2; ++i) input(shape);
        for (int i = 0; i < 2; ++i) input({shape[1]}, true);
        desc_.attrs = {{"epsilon", 1e-3}};
        return;
      }
      case Op::LayerNormalizationGradient: {
        const Shape shape = any_shape(axes);
        const int64_t axis = between(0, axes - 1);
        for (int i = 0; i < 2; ++i) input(shape);
        input(Shape(shape.begin() + axis, shape.end()), true);
        desc_.attrs = {{"axis", chance(0.5) ? axis : axis - axes}, {"epsilon", 0.1}};
        return;
      }
      case Op::GatherGradient: {
        const int64_t extent = between(1, 9), axis = between(0, axes - 1);
        const Shape indices = any_shape(between(0, 2));
        Shape dy = any_shape(axes - 1);
        dy.insert(dy.begin() + axis, indices.begin(), indices.end());
        desc_.attrs = {{"axis", axis}, {"extent", extent}};
        input(dy);
        desc_.inputs.push_back({chance(0.5) ? DType::i64 : DType::i32, indices});
        return;
      }
      case Op::SoftmaxCrossEntropy:
      case Op::SoftmaxCrossEntropyGradient: {
        const Shape logits = any_shape(axes), rows(logits.begin(), logits.end() - 1);
        if (op_ == Op::SoftmaxCrossEntropyGradient) input(rows);
        input(logits);
        desc_.inputs.push_back({chance(0.5) ? DType::i64 : DType::i32, rows});
        return;
      }
      case Op::Expand: {
        const Shape shape = any_shape(between(1, 5));
        desc_.attrs = {{"shape", shape}};
        return input(broadcastable(shape));
      }
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Div: {
        const Shape shape = any_shape(between(0, 5));
        input(chance(0.5) ? shape : broadcastable(shape));
        return input(chance(0.5) ? shape : broadcastable(shape));
      }
      case Op::Accumulate: {
        const Shape shape = any_shape(axes);
        input({element_count(shape)});
        return input(shape);
      }
      case Op::Sum: {
        const Shape shape = any_shape(axes);
        for (int64_t i = between(1, 4); i > 0; --i) input(shape);
        return;
      }
      case Op::BatchNormalization: {
        const Shape shape = image();
        input(shape);
        for (int i = 0; i < 4; ++i) input({shape[1]}, true);
        desc_.attrs = {{"epsilon", 1e-3}};
        return;
      }
      case Op::LayerNormalization: {
        const Shape shape = any_shape(axes);
        const int64_t axis = between(0, axes - 1);
        input(shape);
        for (int64_t i = between(1, 2); i > 0; --i) input(Shape(shape.begin() + axis, shape.end()), true);
        desc_.attrs = {{"axis", chance(0.5) ? axis : axis - axes}, {"epsilon", 0.1}};
        return;
      }
      case Op::InstanceNormalization: {
        const Shape shape = image();
        input(shape);
        for (int i = 0; i < 2; ++i) input({shape[1]}, true);
        desc_.attrs = {{"epsilon", 0.1}};
        return;
      }
      case Op::LRN:
        desc_.attrs = {{"alpha", 0.2}, {"beta", chance(0.5) ? 0.75 : 0.6}, {"bias", 1.5}, {"size", between(1, 5)}};
        return input(image());
      case Op::Softmax:
        desc_.attrs = {{"axis", between(0, axes - 1)}};
        return input(any_shape(axes));
      case Op::Concat: {
        const int64_t axis = between(0, axes - 1);
        desc_.attrs = {{"axis", axis}};
        Shape shape = any_shape(axes);
        for (int64_t i = between(1, 4); i > 0; --i) {
          shape[static_cast<size_t>(axis)] = pick({between(1, 9), 16, 32});
          input(shape);
        }
        return;
      }
      case Op::Transpose: {
        Ints perm;
        for (int64_t i = 0; i < axes; ++i) perm.insert(perm.begin() + between(0, i), i);
        desc_.attrs = {{"perm", perm}};
        return input(any_shape(axes));
      }
      case Op::Attention:
        return attention();
      case Op::CachedAttention:
      case Op::PagedAttention:
        return cached(op_ == Op::PagedAttention);
      case Op::RotaryEmbedding:
        return rotary();
      case Op::TopK: {
        const Shape shape = any_shape(axes);
        desc_.attrs = {
            {"axis", int64_t{-1}}, {"k", between(0, shape.back())}, {"largest", int64_t{1}}, {"sorted", between(0, 1)}};
        return input(shape);
      }
      case Op::Slice:
        return slice(chance(0.6) ? image() : any_shape(axes));
      case Op::ReduceMean:
      case Op::ReduceSum: {
        Ints reduced;
        for (int64_t i = 0; i < axes; ++i) {
          if (chance(0.5)) reduced.push_back(i);
        }
        if (reduced.empty()) reduced.push_back(axes - 1);
        desc_.attrs = {{"axes", reduced}, {"keepdims", between(0, 1)}};
        return input(any_shape(axes));
      }
      case Op::Pad: {
        Ints pads(static_cast<size_t>(2 * axes));
        for (int64_t& pad : pads) pad = between(0, 3);
        desc_.attrs = {{"pads", pads}, {"value", 0.25}};
        return input(any_shape(axes));
      }
      default:
        desc_.attrs = unary_attrs(op_);
        if (op_ == Op::Gelu && chance(0.5)) set_attr(desc_.attrs, "approximate", std::string("tanh"));
        return input(any_shape(axes));
    }
  }

  Op op_;
  Random& random_;
  ComputeDesc desc_;
};

// The ways to lay out a computation's tensors with three or four axes, weights aside: all row-major, all in blocks,
// only the first one or only the result row-major. Kernels refuse those they do not have.
inline std::vector<ComputeDesc> layouts_of(const ComputeDesc& desc, int block) {
  const auto has_pixels = [](const TensorType& type) { return type.shape.size() == 3 || type.shape.size() == 4; };
  if (!has_pixels(desc.outputs[0])) return {desc};
  ComputeDesc blocked = desc;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (has_pixels(desc.inputs[i]) && !desc.is_weight(i)) blocked.inputs[i].block = block;
  }
  blocked.outputs[0].block = block;
  ComputeDesc stem = blocked, last = blocked;
  stem.inputs[0].block = 0;
  last.outputs[0].block = 0;
  for (size_t i = desc.own_inputs(); i < desc.inputs.size(); ++i) last.inputs[i].block = 0;
  return {desc, blocked, stem, last};
}

inline std::optional<ComputeDesc> random_desc(Op op, Random& random) { return RandomDesc(op, random).draw(); }

inline std::vector<Op> computed_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    if (has(op, traits::has_kernels) && !is_view(op) && !is_update(op) && op != Op::Accumulate &&
        op != Op::DropoutTraining && op != Op::MovingAverage && op != Op::StepCount && op != Op::SumOfSquares)
      ops.push_back(op);  // update_test.cc
  }
  ops.push_back(Op::Slice);
  return ops;
}

struct LevelAndOp {
  Isa isa;
  Op op;
};

// Each level of CPUs with each computed operator.
inline std::vector<LevelAndOp> levels_and_ops() {
  std::vector<LevelAndOp> all;
  for (Isa isa : all_levels()) {
    for (Op op : computed_ops()) all.push_back({isa, op});
  }
  return all;
}

}  // namespace nlsplit::testing
