#include "graph/zoo/net.h"

#include <cmath>

#include "base/hash.h"

namespace nlsplit::inline graph {
namespace {

// Of the values that every layer adds or subtracts: visible in the output, small beside the activations.
constexpr double offset_deviation = 0.1;
// Of scales and variances around their mean. Normals end at 6 deviations (base/random.h), so a variance stays above
// 0.4.
constexpr double spread = 0.1;

double he_deviation(int64_t fan_in, bool after_relu) {
  return std::sqrt((after_relu ? 2.0 : 1.0) / static_cast<double>(fan_in));
}

}  // namespace

ZooNet::ZooNet(std::string name, uint64_t seed, StoredTypes stored)
    : ZooNet(
          std::move(name),
          [seed](WeightStore& store, const std::string& weight, const TensorType& type, double deviation, double mean) {
            const ContentId values = store.add_random({DType::f32, type.shape}, hash_text(weight, seed),
                                                      static_cast<float>(deviation), static_cast<float>(mean));
            if (type.dtype == DType::f32) return values;
            return store.add_derived(Derivation::to_stored, {values}, static_cast<double>(type.dtype), type);
          },
          std::move(stored)) {}

ValueId ZooNet::node(Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs) {
  return builder_.add(op, name, std::move(inputs), std::move(attrs)).value();
}

std::vector<ValueId> ZooNet::node_with_results(Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs,
                                               const std::vector<std::string>& results) {
  return builder_.add_all(op, name, std::move(inputs), std::move(attrs), results).value();
}

ValueId ZooNet::weight(const std::string& name, const TensorType& type, double deviation, double mean) {
  return builder_.weight(name, type, source_(weights_, name, type, deviation, mean));
}

ValueId ZooNet::conv(const std::string& name, ValueId x, const ConvSpec& spec) {
  const int64_t depth = channels(x) / spec.groups;
  const int64_t width = spec.kernel_w == 0 ? spec.kernel : spec.kernel_w;
  const int64_t pad_w = spec.kernel_w == 0 ? spec.pad : spec.pad_w;
  const int64_t fan_in = depth * spec.kernel * width;
  std::vector<ValueId> inputs{x, weight(name + ".weight", {spec.channels, depth, spec.kernel, width},
                                        spec.gain * he_deviation(fan_in, spec.after_relu))};
  if (spec.bias) inputs.push_back(weight(name + ".bias", {spec.channels}, offset_deviation));
  using Ints = std::vector<int64_t>;
  return node(Op::Conv, name, std::move(inputs),
              {{"dilations", Ints{1, 1}},
               {"group", spec.groups},
               {"kernel_shape", Ints{spec.kernel, width}},
               {"pads", Ints{spec.pad, pad_w, spec.pad, pad_w}},
               {"strides", Ints{spec.stride, spec.stride}}});
}

ValueId ZooNet::batch_norm(const std::string& name, ValueId x, float scale, double epsilon) {
  const Shape shape{channels(x)};
  const ValueId scales = weight(name + ".weight", shape, spread * scale, scale);
  const ValueId bias = weight(name + ".bias", shape, offset_deviation);
  const ValueId mean = weight(name + ".running_mean", shape, offset_deviation);
  const ValueId variance = weight(name + ".running_var", shape, spread, 1);
  return node(Op::BatchNormalization, name, {x, scales, bias, mean, variance}, {{"epsilon", epsilon}});
}

ValueId ZooNet::relu(const std::string& name, ValueId x) { return node(Op::Relu, name, {x}); }

ValueId ZooNet::relu6(const std::string& name, ValueId x) {
  return node(Op::Clip, name, {x}, {{"max", 6.0}, {"min", 0.0}});
}

ValueId ZooNet::silu(const std::string& name, ValueId x) {
  return node(Op::Mul, name, {x, node(Op::Sigmoid, name + ".gate", {x})});
}

ValueId ZooNet::add(const std::string& name, ValueId a, ValueId b) { return node(Op::Add, name, {a, b}); }
ValueId ZooNet::mul(const std::string& name, ValueId a, ValueId b) { return node(Op::Mul, name, {a, b}); }

ValueId ZooNet::concat(const std::string& name, std::vector<ValueId> parts, int64_t axis) {
  return node(Op::Concat, name, std::move(parts), {{"axis", axis}});
}

ValueId ZooNet::max_pool(const std::string& name, ValueId x, int64_t kernel, int64_t stride, int64_t pad) {
  using Ints = std::vector<int64_t>;
  return node(Op::MaxPool, name, {x},
              {{"ceil_mode", int64_t{0}},
               {"dilations", Ints{1, 1}},
               {"kernel_shape", Ints{kernel, kernel}},
               {"pads", Ints(4, pad)},
               {"strides", Ints{stride, stride}}});
}

ValueId ZooNet::average_pool(const std::string& name, ValueId x, int64_t kernel, int64_t stride, int64_t pad) {
  using Ints = std::vector<int64_t>;
  return node(Op::AveragePool, name, {x},
              {{"ceil_mode", int64_t{0}},
               {"count_include_pad", int64_t{1}},
               {"kernel_shape", Ints{kernel, kernel}},
               {"pads", Ints(4, pad)},
               {"strides", Ints{stride, stride}}});
}

ValueId ZooNet::global_average_pool(const std::string& name, ValueId x) {
  return node(Op::GlobalAveragePool, name, {x});
}

ValueId ZooNet::flatten(const std::string& name, ValueId x) {
  return node(Op::Flatten, name, {x}, {{"axis", int64_t{1}}});
}

ValueId ZooNet::linear(const std::string& name, ValueId x, int64_t features, bool after_relu) {
  const int64_t fan_in = channels(x);
  const ValueId w = weight(name + ".weight", {features, fan_in}, he_deviation(fan_in, after_relu));
  const ValueId bias = weight(name + ".bias", {features}, offset_deviation);
  return node(Op::Gemm, name, {x, w, bias},
              {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{1}}});
}

ValueId ZooNet::scalar(const std::string& name, double value) {
  const TensorType type{DType::f32, {}};
  return builder_.weight(name, type, weights_.add_fill(type, value));
}

ValueId ZooNet::table(const std::string& name, Formula formula, Shape shape, double parameter,
                      std::span<const float> factors) {
  const TensorType type{DType::f32, std::move(shape)};
  return builder_.weight(name, type, weights_.add_formula(formula, type, parameter, factors));
}

ValueId ZooNet::half_table(const std::string& name, Formula formula, Shape shape, double parameter,
                           std::span<const float> factors) {
  const TensorType whole{DType::f32, std::move(shape)};
  const int64_t columns = whole.shape[1];
  const ContentId all = weights_.add_formula(formula, whole, parameter, factors);
  return builder_.weight(name, {DType::f32, {whole.shape[0], columns - columns / 2}},
                         weights_.add_slice(all, 1, columns / 2, columns, whole));
}

ValueId ZooNet::transposed(const std::string& name, ValueId matrix) {
  const Value& from = builder_.graph().value(matrix);
  const int64_t columns = from.type.shape[1];
  const TensorType type{DType::f32, {columns, from.type.shape[0]}};
  const ContentId content =
      weights_.add_derived(Derivation::transpose, {from.content}, static_cast<double>(columns), type);
  return builder_.weight(name, type, content);
}

Model ZooNet::finish(const std::vector<ValueId>& outputs) && {
  for (const ValueId output : outputs) builder_.output(output);
  return {std::move(builder_).finish(), std::move(weights_)};
}

}  // namespace nlsplit::inline graph
