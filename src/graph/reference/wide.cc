#include "graph/reference/wide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

using reference::Array;
using reference::Arrays;

TensorType widened(TensorType type) {
  if (type.dtype == DType::f32) type.dtype = DType::f64;
  return type;
}

// y = (x - mean) / sqrt(variance + e) * scale + bias of `n` elements from `first` on; parameters by element or one.
void normalize(const Array& x, int64_t first, int64_t n, double epsilon, const std::function<double(int64_t)>& scale,
               const std::function<double(int64_t)>& bias, Array& out) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += x.number(first + i) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) variance += std::pow(x.number(first + i) - mean, 2) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i)
    out.set(first + i, (x.number(first + i) - mean) / std::sqrt(variance + epsilon) * scale(i) + bias(i));
}

// What evaluate.cc has for f32 alone. false: not here either.
bool floats_only(Op op, const Attrs& attrs, const Arrays& in, Array& out) {
  const Array& x = *in[0];
  const Shape& shape = x.type.shape;
  if (op == Op::GlobalAveragePool) {
    const int64_t plane = x.count() / std::max<int64_t>(1, out.count());
    for (int64_t i = 0; i < out.count(); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < plane; ++k) sum += x.number(i * plane + k);
      out.set(i, sum / static_cast<double>(plane));
    }
    return true;
  }
  if (op == Op::BatchNormalization) {
    const int64_t plane = x.count() / (shape[0] * shape[1]);
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t c = i / plane % shape[1];
      const double r = 1 / std::sqrt(in[4]->number(c) + attr_float(attrs, "epsilon"));
      out.set(i, (x.number(i) - in[3]->number(c)) * r * in[1]->number(c) + in[2]->number(c));
    }
    return true;
  }
  if (op == Op::LayerNormalization) {
    const auto axis = axis_of(attr_int(attrs, "axis"), shape.size()).value();
    const int64_t n = element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()));
    for (int64_t row = 0; row < x.count() / n; ++row) {
      normalize(
          x, row * n, n, attr_float(attrs, "epsilon"), [&](int64_t i) { return in[1]->number(i); },
          [&](int64_t i) { return in.size() > 2 ? in[2]->number(i) : 0; }, out);
    }
    return true;
  }
  if (op == Op::InstanceNormalization) {
    const int64_t n = x.count() / (shape[0] * shape[1]);
    for (int64_t nc = 0; nc < shape[0] * shape[1]; ++nc) {
      normalize(
          x, nc * n, n, attr_float(attrs, "epsilon"), [&](int64_t) { return in[1]->number(nc % shape[1]); },
          [&](int64_t) { return in[2]->number(nc % shape[1]); }, out);
    }
    return true;
  }
  if (op == Op::LRN) {
    const int64_t channels = shape[1], inner = x.count() / (shape[0] * channels), size = attr_int(attrs, "size");
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t c = i / inner % channels;
      double squares = 0;
      for (int64_t k = std::max<int64_t>(0, c - (size - 1) / 2); k <= std::min(channels - 1, c + size / 2); ++k)
        squares += std::pow(x.number(i + (k - c) * inner), 2);
      const double s = attr_float(attrs, "bias") + attr_float(attrs, "alpha") / static_cast<double>(size) * squares;
      out.set(i, x.number(i) * std::pow(s, -attr_float(attrs, "beta")));
    }
    return true;
  }
  return false;
}

}  // namespace

Result<std::vector<Array>> evaluate_wide(const Graph& graph, const WeightStore& weights,
                                         const std::map<ValueId, Array>& values, const std::vector<ValueId>& wanted) {
  std::vector<std::optional<Array>> made(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (const auto given = values.find(ValueId(static_cast<uint32_t>(i))); given != values.end()) {
      made[i] = given->second;
    } else if (value.kind == ValueKind::weight) {
      ASSIGN_OR_RETURN(std::string raw, weights.materialise(value.content));
      made[i] = reference::to_array(tensor_of(value.type, std::move(raw)));
    } else if (value.kind == ValueKind::input) {
      return invalid_input(fmt::format("input {} is missing", value.name));
    }
    if (made[i]) made[i]->type = widened(value.type);
  }
  for (const Node& node : graph.nodes) {
    CHECK(node.epilogue.empty(), "gradients are of graphs before fusion");
    Arrays in;
    for (const ValueId id : node.inputs) in.push_back(id.valid() ? &*made[id.index()] : nullptr);
    std::vector<Array> outputs;
    for (const ValueId id : node.outputs) outputs.push_back(reference::zeros(widened(graph.value(id).type)));
    if (!reference::general(node.op, node.attrs, in, outputs) && !floats_only(node.op, node.attrs, in, outputs[0]))
      return unsupported(fmt::format("node {}: {} is not evaluated in double precision", node.name, name_of(node.op)));
    for (size_t i = 0; i < outputs.size(); ++i) made[node.outputs[i].index()] = std::move(outputs[i]);
  }
  std::vector<Array> answers;
  for (const ValueId id : wanted) answers.push_back(*made[id.index()]);
  return answers;
}

}  // namespace nlsplit::inline graph
