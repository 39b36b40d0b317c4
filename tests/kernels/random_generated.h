// Random computations that code is generated for: any types, uneven shapes, broadcasting.
//
//   std::optional<ComputeDesc> desc = random_generated(Op::Where, random);   // none: this draw is not a valid one
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/elements.h"
#include "kernels/catalogue.h"

namespace nlsplit::testing {

class RandomGenerated {
 public:
  RandomGenerated(Op op, Random& random) : op_(op), random_(random) {}

  std::optional<ComputeDesc> draw() {
    desc_.op = op_;
    fill();
    auto types = info(op_).infer(desc_.inputs, desc_.attrs);
    if (!types.ok()) return std::nullopt;
    desc_.outputs = *types;
    if (desc_.outputs.size() != 1 || desc_.outputs[0].dtype == DType::boolean) return desc_;
    for (int64_t steps = chance(0.3) ? between(1, 3) : 0; steps > 0; --steps) step();
    return desc_;
  }

 private:
  using Ints = std::vector<int64_t>;
  bool chance(double p) { return random_.uniform() < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[random_.below(from.size())];
  }
  DType any_type() {
    const std::span<const DType> all = all_dtypes();
    for (;;) {
      const DType type = all[random_.below(all.size())];
      if (!is_scaled(type)) return type;
    }
  }
  DType float_type() { return pick({DType::f32, DType::f32, DType::f32, DType::f64, DType::f16, DType::bf16}); }
  DType often_float() { return chance(0.5) ? float_type() : any_type(); }
  DType index_type() { return pick({DType::i64, DType::i64, DType::i32}); }
  Shape any_shape(int64_t axes) {
    Shape shape;
    for (int64_t i = 0; i < axes; ++i) shape.push_back(chance(0.03) ? 0 : between(1, i + 1 == axes ? 40 : 5));
    return shape;
  }
  Shape broadcastable(Shape shape) {
    for (int64_t& extent : shape) extent = chance(0.3) ? 1 : extent;
    shape.erase(shape.begin(), shape.begin() + (chance(0.3) ? between(0, static_cast<int64_t>(shape.size())) : 0));
    return shape;
  }
  void input(DType type, Shape shape) { desc_.inputs.push_back({type, std::move(shape)}); }

  void step() {
    const Op op = pick({Op::Relu, Op::Clip, Op::Sigmoid, Op::HardSigmoid, Op::HardSwish, Op::Tanh, Op::LeakyRelu,
                        Op::Gelu, Op::Add, Op::Mul});
    const bool of_reals = op != Op::Relu && op != Op::Clip && op != Op::Add && op != Op::Mul;
    if (of_reals && !is_real(desc_.outputs[0].dtype)) return;
    desc_.epilogue.push_back({op, attrs_of(op)});
    if (has(op, traits::is_step_with_operand)) desc_.inputs.push_back(desc_.outputs[0]);
  }
  Attrs attrs_of(Op op) {
    switch (op) {
      case Op::Clip:
        return {{"max", 3.75}, {"min", -0.5}};
      case Op::LeakyRelu:
      case Op::Celu:
      case Op::Elu:
      case Op::ThresholdedRelu:
        return {{"alpha", 0.3}};
      case Op::Selu:
        return {{"alpha", 1.67}, {"gamma", 1.05}};
      case Op::Shrink:
        return {{"bias", 0.25}, {"lambd", 0.5}};
      case Op::HardSigmoid:
        return {{"alpha", 0.25}, {"beta", 0.5}};
      case Op::Gelu:
        return {{"approximate", std::string(chance(0.5) ? "tanh" : "none")}};
      case Op::IsInf:
        return {{"detect_negative", between(0, 1)}, {"detect_positive", between(0, 1)}};
      case Op::Mod:
        return {{"fmod", between(0, 1)}};
      case Op::BitShift:
        return {{"direction", std::string(chance(0.5) ? "LEFT" : "RIGHT")}};
      case Op::Cast:
        return {{"to", std::string(name_of(any_type()))}};
      default:
        return {};
    }
  }

  void resize(const Shape& shape) {
    std::vector<double> scales, roi(2 * shape.size(), 0.0);
    Ints sizes;
    for (size_t i = 0; i < shape.size(); ++i) {
      const double scale = i < 2 && chance(0.7) ? 1.0 : pick({0.5, 1.0, 1.5, 2.0, 2.0, 3.0, 0.7, 2.6});
      scales.push_back(scale);
      sizes.push_back(static_cast<int64_t>(std::floor(scale * static_cast<double>(shape[i]))));
      roi[i] = chance(0.5) ? 0.0 : 0.2;
      roi[shape.size() + i] = chance(0.5) ? 1.0 : 0.9;
      if (scale == 1.0) roi[i] = 0.0, roi[shape.size() + i] = 1.0;
    }
    const char* coordinates[] = {"half_pixel",           "align_corners",      "asymmetric",
                                 "tf_half_pixel_for_nn", "pytorch_half_pixel", "half_pixel_symmetric",
                                 "tf_crop_and_resize"};
    const char* modes[] = {"nearest", "nearest", "linear", "cubic"};
    const char* roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    desc_.attrs = {{"antialias", int64_t{0}},
                   {"coordinate_transformation_mode", std::string(coordinates[random_.below(7)])},
                   {"cubic_coeff_a", -0.75},
                   {"exclude_outside", int64_t{0}},
                   {"extrapolation_value", 1.5},
                   {"mode", std::string(modes[random_.below(4)])},
                   {"nearest_mode", std::string(roundings[random_.below(4)])},
                   {"roi", roi},
                   {"scales", scales},
                   {"sizes", sizes}};
  }

  void windows(const Shape& image) {
    Ints kernel, strides, dilations, pads;
    for (size_t axis = 2; axis < image.size(); ++axis) {
      kernel.push_back(between(1, 3));
      strides.push_back(between(1, 2));
      dilations.push_back(between(1, 2));
    }
    for (size_t i = 0; i < 2 * kernel.size(); ++i)
      pads.push_back(chance(0.5) ? 0 : between(0, kernel[i % kernel.size()] - 1));
    desc_.attrs = {{"dilations", dilations}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
  }

  std::string reduction() { return std::string(pick({"none", "none", "add", "mul", "max", "min"})); }

  // Labels that stand in one operand or several, or twice in one; extents of 1 among others.
  void einsum() {
    const std::string_view letters = "cABd";
    Shape extents;
    for (size_t i = 0; i < letters.size(); ++i) extents.push_back(between(1, 6));
    const bool open = chance(0.3);
    const Shape lead = open ? any_shape(between(0, 2)) : Shape{};
    const DType type = often_float();
    std::string equation, kept = open ? "..." : "";
    for (int64_t i = 0, operands = between(1, 3); i < operands; ++i) {
      Shape shape;
      for (const int64_t extent : lead) shape.push_back(chance(0.2) ? 1 : extent);
      if (i > 0) equation += ',';
      if (open) equation += "...";
      for (size_t k = 0; k < letters.size(); ++k) {
        for (int64_t times = chance(0.6) ? 1 + static_cast<int64_t>(chance(0.15)) : 0; times > 0; --times) {
          equation += letters[k];
          shape.push_back(chance(0.1) ? 1 : extents[k]);
        }
      }
      input(type, shape);
    }
    for (const char letter : letters) {
      if (equation.find(letter) != equation.npos && chance(0.5))
        kept.insert(static_cast<size_t>(between(0, 1)) * kept.size(), 1, letter);
    }
    desc_.attrs = {{"equation", equation + (chance(0.8) ? "->" + kept : "")}};
  }

  void fill() {
    const int64_t axes = between(0, 4);
    switch (op_) {
      case Op::Sum:
      case Op::Mean:
      case Op::Max:
      case Op::Min: {
        const DType type = often_float();
        const Shape shape = any_shape(axes);
        input(type, shape);
        for (int64_t more = between(0, 3); more > 0; --more) input(type, op_ == Op::Sum ? shape : broadcastable(shape));
        return;
      }
      case Op::Where: {
        const DType type = any_type();
        const Shape shape = any_shape(axes);
        input(DType::boolean, broadcastable(shape));
        input(type, broadcastable(shape));
        return input(type, broadcastable(shape));
      }
      case Op::Pow:
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Div:
      case Op::Mod:
      case Op::PRelu:
      case Op::BitShift:
      case Op::BitwiseAnd:
      case Op::BitwiseOr:
      case Op::BitwiseXor:
      case Op::And:
      case Op::Or:
      case Op::Xor:
      case Op::Equal:
      case Op::Greater:
      case Op::GreaterOrEqual:
      case Op::Less:
      case Op::LessOrEqual: {
        const bool logic = op_ == Op::And || op_ == Op::Or || op_ == Op::Xor;
        const DType type = logic ? DType::boolean : often_float();
        const Shape shape = any_shape(axes);
        desc_.attrs = attrs_of(op_);
        input(type, op_ == Op::PRelu ? shape : broadcastable(shape));
        return input(op_ == Op::Pow && chance(0.3) ? any_type() : type, broadcastable(shape));
      }
      case Op::QuantizeLinear:
      case Op::DequantizeLinear: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        const int64_t axis = between(0, static_cast<int64_t>(shape.size()) - 1);
        const Shape one = chance(0.5) ? Shape{} : Shape{shape[static_cast<size_t>(axis)]};
        const DType whole = pick({DType::i8, DType::u8, DType::i16, DType::u16, DType::i32});
        desc_.attrs = {{"axis", axis}};
        const bool makes = op_ == Op::QuantizeLinear;
        input(makes ? (chance(0.8) ? float_type() : DType::i32) : whole, shape);
        input(float_type(), one);
        if (makes || chance(0.7)) input(whole, one);
        return;
      }
      case Op::ReduceL1:
      case Op::ReduceL2:
      case Op::ReduceLogSum:
      case Op::ReduceLogSumExp:
      case Op::ReduceMax:
      case Op::ReduceMin:
      case Op::ReduceProd:
      case Op::ReduceSum:
      case Op::ReduceSumSquare:
      case Op::ReduceMean: {
        Ints reduced;
        for (int64_t i = 0; i < axes; ++i) {
          if (chance(0.5)) reduced.push_back(chance(0.5) ? i : i - axes);
        }
        desc_.attrs = {{"axes", reduced}, {"keepdims", between(0, 1)}};
        return input(often_float(), any_shape(axes));
      }
      case Op::ArgMax:
      case Op::ArgMin:
      case Op::CumSum:
      case Op::Softmax:
      case Op::LogSoftmax: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        desc_.attrs = {{"axis", between(0, static_cast<int64_t>(shape.size()) - 1)}};
        if (op_ == Op::CumSum) {
          set_attr(desc_.attrs, "exclusive", between(0, 1));
          set_attr(desc_.attrs, "reverse", between(0, 1));
        } else if (op_ == Op::ArgMax || op_ == Op::ArgMin) {
          set_attr(desc_.attrs, "keepdims", between(0, 1));
          set_attr(desc_.attrs, "select_last_index", between(0, 1));
        }
        return input(often_float(), shape);
      }
      case Op::Concat: {
        Shape shape = any_shape(std::max<int64_t>(axes, 1));
        const int64_t axis = between(0, static_cast<int64_t>(shape.size()) - 1);
        const DType type = any_type();
        desc_.attrs = {{"axis", axis}};
        for (int64_t more = between(1, 4); more > 0; --more) {
          shape[static_cast<size_t>(axis)] = between(0, 9);
          input(type, shape);
        }
        return;
      }
      case Op::Pad: {
        const Shape shape = any_shape(axes);
        Ints pads(2 * shape.size());
        for (int64_t& pad : pads) pad = between(-1, 3);
        desc_.attrs = {{"pads", pads}, {"value", 2.0}};
        return input(any_type(), shape);
      }
      case Op::Tile: {
        const Shape shape = any_shape(axes);
        Ints repeats;
        for (size_t i = 0; i < shape.size(); ++i) repeats.push_back(between(0, 9) == 0 ? 0 : between(1, 3));
        desc_.attrs = {{"repeats", repeats}};
        return input(any_type(), shape);
      }
      case Op::Slice: {
        const Shape shape = any_shape(axes);
        Ints which, starts, ends, steps;
        for (size_t axis = 0; axis < shape.size(); ++axis) {
          which.push_back(static_cast<int64_t>(axis));
          starts.push_back(between(-shape[axis] - 2, shape[axis] + 2));
          ends.push_back(between(-shape[axis] - 2, shape[axis] + 2));
          steps.push_back(pick({1, 2, 3, -1, -2}));
          if (chance(0.5)) starts.back() = 0, ends.back() = 1000, steps.back() = 1;
        }
        desc_.attrs = {{"axes", which}, {"ends", ends}, {"starts", starts}, {"steps", steps}};
        return input(any_type(), shape);
      }
      case Op::Transpose: {
        Ints perm;
        for (int64_t i = 0; i < axes; ++i) perm.insert(perm.begin() + between(0, i), i);
        desc_.attrs = {{"perm", perm}};
        return input(any_type(), any_shape(axes));
      }
      case Op::Expand: {
        const Shape shape = any_shape(between(1, 5));
        desc_.attrs = {{"shape", shape}};
        return input(any_type(), broadcastable(shape));
      }
      case Op::GatherElements: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        Shape indices = shape;
        const int64_t axis = between(0, static_cast<int64_t>(shape.size()) - 1);
        for (int64_t& extent : indices) extent = std::max<int64_t>(0, extent - between(0, 2));
        indices[static_cast<size_t>(axis)] = between(1, 30);
        desc_.attrs = {{"axis", chance(0.5) ? axis : axis - static_cast<int64_t>(shape.size())}};
        input(any_type(), shape);
        return input(index_type(), indices);
      }
      case Op::GatherND: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        const auto rank = static_cast<int64_t>(shape.size());
        const int64_t batch = between(0, rank - 1), depth = between(1, rank - batch);
        Shape indices(shape.begin(), shape.begin() + batch);
        for (int64_t more = between(0, 2); more > 0; --more) indices.push_back(between(1, 7));
        indices.push_back(depth);
        desc_.attrs = {{"batch_dims", batch}};
        input(any_type(), shape);
        return input(index_type(), indices);
      }
      case Op::ScatterElements: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        Shape indices = shape;
        const int64_t axis = between(0, static_cast<int64_t>(shape.size()) - 1);
        for (int64_t& extent : indices) extent = std::max<int64_t>(0, extent - (chance(0.3) ? between(0, 2) : 0));
        indices[static_cast<size_t>(axis)] = between(1, 30);
        desc_.attrs = {{"axis", chance(0.5) ? axis : axis - static_cast<int64_t>(shape.size())},
                       {"reduction", reduction()}};
        const DType type = any_type();
        input(type, shape);
        input(index_type(), indices);
        return input(type, indices);
      }
      case Op::ScatterND: {
        const Shape shape = any_shape(axes);
        const int64_t depth = between(0, static_cast<int64_t>(shape.size()));
        Shape indices;
        for (int64_t more = between(0, 2); more > 0; --more) indices.push_back(between(1, 7));
        Shape updates = indices;
        updates.insert(updates.end(), shape.begin() + depth, shape.end());
        indices.push_back(depth);
        desc_.attrs = {{"reduction", reduction()}};
        const DType type = any_type();
        input(type, shape);
        input(index_type(), indices);
        return input(type, updates);
      }
      case Op::Einsum:
        return einsum();
      case Op::MatMul: {
        const DType type = often_float();
        const Shape lead = any_shape(between(0, 2));
        const int64_t inner = between(1, 20);
        Shape a = broadcastable(lead), b = broadcastable(lead);
        if (a.empty() ? chance(0.7) : true) a.push_back(between(1, 9));
        a.push_back(inner), b.push_back(inner);
        if (b.size() > 1 || chance(0.7)) b.push_back(between(1, 20));
        input(type, a);
        return input(type, b);
      }
      case Op::Conv: {
        const Shape image = any_shape(between(3, 5));
        const int64_t groups = between(1, 2), depth = between(1, 3), filters = groups * between(1, 3);
        windows(image);
        set_attr(desc_.attrs, "group", groups);
        const DType type = float_type();
        Shape x = image, weights = attr_ints(desc_.attrs, "kernel_shape");
        x[1] = groups * depth;
        weights.insert(weights.begin(), {filters, depth});
        input(type, x);
        input(type, weights);
        if (chance(0.5)) input(type, {filters});
        return;
      }
      case Op::MaxPool:
      case Op::AveragePool:
      case Op::LpPool: {
        const Shape image = any_shape(between(3, 5));
        windows(image);
        if (op_ != Op::MaxPool) std::erase_if(desc_.attrs, [](const auto& attr) { return attr.name == "dilations"; });
        set_attr(desc_.attrs, "ceil_mode", between(0, 1));
        if (op_ == Op::AveragePool) set_attr(desc_.attrs, "count_include_pad", between(0, 1));
        if (op_ == Op::LpPool) set_attr(desc_.attrs, "p", between(1, 3));
        return input(float_type(), image);
      }
      case Op::MaxUnpool: {
        const Shape shape = any_shape(between(3, 4));
        Shape to = shape;
        for (size_t axis = 0; axis < to.size(); ++axis) to[axis] = axis < 2 ? 0 : 2 * to[axis];
        desc_.attrs = {{"shape", to}};
        input(float_type(), shape);
        return input(DType::i64, shape);
      }
      case Op::GridSample: {
        const Shape image = any_shape(4);
        const char* modes[] = {"linear", "linear", "nearest", "cubic"};
        const char* paddings[] = {"zeros", "border", "reflection"};
        desc_.attrs = {{"align_corners", between(0, 1)},
                       {"mode", std::string(modes[random_.below(4)])},
                       {"padding_mode", std::string(paddings[random_.below(3)])}};
        input(float_type(), image);
        return input(float_type(), {image[0], between(1, 5), between(1, 20), 2});
      }
      case Op::RoiAlign: {
        const int64_t regions = between(1, 4);
        desc_.attrs = {
            {"coordinate_transformation_mode", std::string(chance(0.5) ? "half_pixel" : "output_half_pixel")},
            {"mode", std::string(chance(0.5) ? "avg" : "max")},
            {"output_height", between(1, 4)},
            {"output_width", between(1, 5)},
            {"sampling_ratio", between(0, 3)},
            {"spatial_scale", pick({1.0, 0.5, 0.25})}};
        input(float_type(), any_shape(4));
        input(float_type(), {regions, 4});
        return input(DType::i64, {regions});
      }
      case Op::OneHot: {
        const Shape shape = any_shape(std::min<int64_t>(axes, 3));
        desc_.attrs = {{"axis", between(-1, static_cast<int64_t>(shape.size()))}, {"depth", between(1, 12)}};
        input(chance(0.3) ? DType::f32 : index_type(), shape);
        return input(any_type(), {2});
      }
      case Op::ReverseSequence: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 2));
        const int64_t batch = between(0, 1);
        desc_.attrs = {{"batch_axis", batch}, {"time_axis", 1 - batch}};
        input(any_type(), shape);
        return input(index_type(), {shape[static_cast<size_t>(batch)]});
      }
      case Op::Resize: {
        const Shape shape = any_shape(std::max<int64_t>(axes, 1));
        resize(shape);
        return input(often_float(), shape);
      }
      default:
        desc_.attrs = attrs_of(op_);
        if (op_ == Op::Not) return input(DType::boolean, any_shape(axes));
        return input(often_float(), any_shape(axes));
    }
  }

  Op op_;
  Random& random_;
  ComputeDesc desc_;
};

inline std::optional<ComputeDesc> random_generated(Op op, Random& random) { return RandomGenerated(op, random).draw(); }

}  // namespace nlsplit::testing
