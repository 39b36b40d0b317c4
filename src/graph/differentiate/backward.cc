#include "graph/differentiate/backward.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "graph/elements.h"

namespace nlsplit::inline graph {

void Backward::begin(const Node& node, std::vector<ValueId> dy, std::vector<bool> wanted) {
  node_ = &node;
  for (const ValueId one : dy) {
    if (one.valid()) floats_ = type(one).dtype;
  }
  dy_ = std::move(dy);
  wanted_ = std::move(wanted);
  given_.assign(node.inputs.size(), ValueId());
  prefix_ = "d." + node.name;
  made_ = 0;
}

ValueId Backward::dy(size_t output) {
  if (!dy_[output].valid()) dy_[output] = constant(shape(y(output)), 0);
  return dy_[output];
}

std::optional<double> Backward::number(ValueId value) const {
  const Value& it = graph_.graph().value(value);
  if (it.kind != ValueKind::weight || element_count(it.type.shape) != 1) return std::nullopt;
  const auto raw = weights_.materialise(it.content);
  if (!raw.ok()) return std::nullopt;
  return is_real(it.type.dtype) ? reals_of(it.type.dtype, *raw)[0]
                                : static_cast<double>(wholes_of(it.type.dtype, *raw)[0]);
}

ValueId Backward::add(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  return add_all(op, std::move(inputs), std::move(attrs), 1)[0];
}

std::vector<ValueId> Backward::add_all(Op op, std::vector<ValueId> inputs, Attrs attrs, size_t outputs) {
  if (status_.ok()) {
    auto made = graph_.add_all(op, fmt::format("{}.{}", prefix_, made_++), std::move(inputs), std::move(attrs));
    if (made.ok()) return *std::move(made);
    status_ = made.error();
  }
  return std::vector<ValueId>(outputs);
}

void Backward::give(size_t input, ValueId gradient) {
  if (!status_.ok()) return;
  CHECK(wants(input), "a gradient that nobody wants");
  CHECK(shape(gradient) == shape(x(input)), "a gradient of another shape than its value");
  given_[input] = gradient;
}

void Backward::fail(Error why) {
  if (status_.ok()) status_ = std::move(why);
}

ValueId Backward::weight(TensorType type, ContentId content) {
  return graph_.weight(fmt::format("{}.{}", prefix_, made_++), std::move(type), content);
}

ValueId Backward::constant(Shape shape, double fill) {
  if (!status_.ok()) return {};
  const TensorType type{floats_, std::move(shape)};
  return weight(type, weights_.add_fill(type, fill));
}

ValueId Backward::constant(TensorType type, const std::vector<double>& elements) {
  if (!status_.ok()) return {};
  return weight(type, weights_.add_bytes(type, raw_of(type.dtype, elements)));
}

ValueId Backward::integers(TensorType type, const std::vector<int64_t>& elements) {
  if (!status_.ok()) return {};
  return weight(type, weights_.add_bytes(type, raw_of(type.dtype, elements)));
}

ValueId Backward::later_places(int64_t queries, int64_t keys) {
  if (!status_.ok()) return {};
  const TensorType all{DType::f32, {keys, keys}};
  ContentId content = weights_.add_formula(Formula::causal_mask, all, -std::numeric_limits<double>::infinity());
  if (queries != keys) content = weights_.add_slice(content, 0, keys - queries, keys, all);
  return as_floats(weight({DType::f32, {queries, keys}}, content));
}

ValueId Backward::scaled(ValueId value, double factor) {
  return factor == 1 ? value : add(Op::Mul, {value, constant({}, factor)});
}

ValueId Backward::plus(ValueId value, double addend) { return add(Op::Add, {value, constant({}, addend)}); }

ValueId Backward::as_floats(ValueId value) {
  if (!status_.ok() || type(value).dtype == floats_) return value;
  return add(Op::Cast, {value}, {{"to", std::string(name_of(floats_))}});
}

ValueId Backward::reshaped(ValueId value, Shape to) {
  if (!status_.ok() || shape(value) == to) return value;
  return add(Op::Reshape, {value}, {{"shape", std::move(to)}});
}

ValueId Backward::summed(ValueId value, std::vector<int64_t> axes) {
  if (axes.empty()) return value;
  return add(Op::ReduceSum, {value}, {{"axes", std::move(axes)}, {"keepdims", int64_t{0}}});
}

ValueId Backward::sum_to(ValueId value, const Shape& to) {
  if (!status_.ok() || shape(value) == to) return value;
  const Shape from = shape(value);
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    const size_t missing = from.size() - to.size();
    if (axis < missing || (to[axis - missing] == 1 && from[axis] != 1)) axes.push_back(static_cast<int64_t>(axis));
  }
  return reshaped(summed(value, std::move(axes)), to);
}

ValueId Backward::transposed(ValueId value) {
  if (!status_.ok()) return {};
  std::vector<int64_t> perm(shape(value).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  if (const Value& it = graph_.graph().value(value); it.kind == ValueKind::node) {
    const Node& node = graph_.graph().node(it.producer);
    if (node.op == Op::Transpose && attr_ints(node.attrs, "perm") == perm) return node.inputs[0];  // turned once before
  }
  return add(Op::Transpose, {value}, {{"perm", std::move(perm)}});
}

}  // namespace nlsplit::inline graph
