#include <algorithm>

#include "graph/operators/shapes.h"
#include "graph/passes/pass_list.h"
#include "graph/passes/pattern.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

using Parts = std::vector<const Node*>;

// apart / sqrt(raised), however it is written.
struct Quotient {
  ValueId apart, raised;
};

// 1 / sqrt(raised), for one reader.
std::optional<ValueId> inverse_root(const Pattern& pattern, ValueId value, Parts& parts) {
  if (const Node* power = pattern.made_for_one(value, Op::Pow)) {
    if (pattern.number(power->inputs[1]) != -0.5) return std::nullopt;
    parts.push_back(power);
    return power->inputs[0];
  }
  const Node* inverse = pattern.made_for_one(value, Op::Reciprocal);
  const Node* ratio = pattern.made_for_one(value, Op::Div);
  if (inverse == nullptr && (ratio == nullptr || pattern.number(ratio->inputs[0]) != 1.0)) return std::nullopt;
  const ValueId under = inverse != nullptr ? inverse->inputs[0] : ratio->inputs[1];
  const Node* root = pattern.made_for_one(under, Op::Sqrt);
  if (root == nullptr) return std::nullopt;
  parts.insert(parts.end(), {inverse != nullptr ? inverse : ratio, root});
  return root->inputs[0];
}

std::optional<Quotient> quotient_of(const Pattern& pattern, const Node& node, Parts& parts) {
  if (!node.epilogue.empty()) return std::nullopt;
  if (node.op == Op::Div) {
    if (const Node* root = pattern.made_for_one(node.inputs[1], Op::Sqrt)) {
      parts.push_back(root);
      return Quotient{node.inputs[0], root->inputs[0]};
    }
    const Node* power = pattern.made_for_one(node.inputs[1], Op::Pow);
    if (power == nullptr || pattern.number(power->inputs[1]) != 0.5) return std::nullopt;
    parts.push_back(power);
    return Quotient{node.inputs[0], power->inputs[0]};
  }
  if (node.op != Op::Mul) return std::nullopt;
  for (const size_t side : {0, 1}) {
    if (const auto raised = inverse_root(pattern, node.inputs[side], parts))
      return Quotient{node.inputs[1 - side], *raised};
  }
  return std::nullopt;
}

// The number of the first of them, if they are all axes from there on and stay with extent 1.
std::optional<size_t> first_axis(const Node& mean, size_t rank) {
  if (attr_int(mean.attrs, "keepdims") == 0) return std::nullopt;
  std::vector<size_t> axes;
  for (const int64_t given : attr_ints(mean.attrs, "axes")) axes.push_back(axis_of(given, rank).value());
  std::ranges::sort(axes);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - axes.size() + i) return std::nullopt;
  }
  return axes.empty() ? std::nullopt : std::optional(axes[0]);
}

// The mean over the last axes, for one reader; nullptr: something else.
const Node* mean_of(const Pattern& pattern, ValueId value) { return pattern.made_for_one(value, Op::ReduceMean); }

bool is_square(const Pattern& pattern, const Node& node, ValueId of) {
  if (node.op == Op::Mul) return node.inputs[0] == of && node.inputs[1] == of && pattern.uses(of) == 3;
  return node.inputs[0] == of && pattern.number(node.inputs[1]) == 2.0 && pattern.uses(of) == 2;
}

struct Normalization {
  ValueId x;
  size_t axis = 0;
  double epsilon = 0;
};

// node = (x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon)
std::optional<Normalization> normalization_of(const Pattern& pattern, const Node& node, Parts& parts) {
  const auto quotient = quotient_of(pattern, node, parts);
  if (!quotient) return std::nullopt;
  const Node* apart = pattern.made_by(quotient->apart, Op::Sub);
  const Node* raised = pattern.made_for_one(quotient->raised, Op::Add);
  if (apart == nullptr || raised == nullptr) return std::nullopt;
  const size_t side = pattern.number(raised->inputs[0]) ? 0 : 1;
  const auto epsilon = pattern.number(raised->inputs[side]);
  const Node* mean = mean_of(pattern, apart->inputs[1]);
  const Node* variance = mean_of(pattern, raised->inputs[1 - side]);
  const ValueId x = apart->inputs[0];
  if (!epsilon || mean == nullptr || variance == nullptr || mean->inputs[0] != x) return std::nullopt;
  const Node* square = pattern.made_for_one(variance->inputs[0], Op::Mul);
  if (square == nullptr) square = pattern.made_for_one(variance->inputs[0], Op::Pow);
  if (square == nullptr || !is_square(pattern, *square, quotient->apart)) return std::nullopt;
  const TensorType& type = pattern.graph().value(x).type;
  const auto axis = first_axis(*mean, type.shape.size());
  if (!axis || first_axis(*variance, type.shape.size()) != axis) return std::nullopt;
  if (type.dtype != DType::f32) return std::nullopt;  // others are rounded after every part
  parts.insert(parts.end(), {apart, raised, mean, variance, square});
  return Normalization{x, *axis, *epsilon};
}

// The constant that the node combines `with`, if it is one for each element that is normalized.
std::optional<ValueId> parameter_of(const Graph& graph, const Node* node, ValueId with, const Shape& normalized) {
  if (node == nullptr) return std::nullopt;
  const ValueId other = node->inputs[node->inputs[0] == with ? 1 : 0];
  const Value& value = graph.value(other);
  if (value.kind != ValueKind::weight || value.type.shape.size() > graph.value(with).type.shape.size())
    return std::nullopt;
  Shape shape = value.type.shape;
  while (shape.size() > normalized.size() && shape[0] == 1) shape.erase(shape.begin());
  return shape == normalized ? std::optional(other) : std::nullopt;
}

// The same bytes under the shape that the operator wants.
ValueId shaped(Graph& graph, ValueId parameter, const Shape& shape) {
  const Value value = graph.value(parameter);
  if (value.type.shape == shape) return parameter;
  return add_weight(graph, value.name + ".flat", {value.type.dtype, shape}, value.content);
}

}  // namespace

// Ba, Kiros, Hinton, "Layer normalization", 2016, as exporters write it who do not know the operator. What is scaled
// and shifted by constants takes them in; else the scale is one.
Result<Graph> recognize_layer_norm(const Graph& graph, WeightStore& weights) {
  const Pattern pattern(graph, weights);
  Recognized out(graph);
  for (const Node& node : graph.nodes) {
    Parts parts;
    const auto found = normalization_of(pattern, node, parts);
    if (!found) continue;
    const Shape& shape = graph.value(found->x).type.shape;
    const Shape normalized(shape.begin() + static_cast<std::ptrdiff_t>(found->axis), shape.end());
    const Node* last = &node;
    const Node* scaled = pattern.only_reader(last->outputs[0], Op::Mul);
    const auto scale = parameter_of(graph, scaled, last->outputs[0], normalized);
    std::optional<ValueId> bias;
    if (scale) {
      parts.push_back(last);
      last = scaled;
      const Node* shifted = pattern.only_reader(last->outputs[0], Op::Add);
      bias = parameter_of(graph, shifted, last->outputs[0], normalized);
      if (bias) {
        parts.push_back(last);
        last = shifted;
      }
    }
    Node norm;
    norm.op = Op::LayerNormalization;
    set_attr(norm.attrs, "axis", static_cast<int64_t>(found->axis));
    set_attr(norm.attrs, "epsilon", found->epsilon);
    const TensorType ones{DType::f32, normalized};
    norm.inputs = {found->x, scale ? shaped(out.graph(), *scale, normalized)
                                   : add_weight(out.graph(), last->name + ".scale", ones, weights.add_fill(ones, 1))};
    if (bias) norm.inputs.push_back(shaped(out.graph(), *bias, normalized));
    out.replace(*last, std::move(norm), parts);
  }
  return out.done();
}

}  // namespace nlsplit::inline graph
