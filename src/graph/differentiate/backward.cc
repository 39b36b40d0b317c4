#include "graph/differentiate/backward.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

namespace nlsplit::inline graph {

void Backward::begin(const Node& node, ValueId dy, uint64_t wanted) {
  node_ = &node;
  dy_ = dy;
  wanted_ = wanted;
  given_.assign(node.inputs.size(), ValueId());
  prefix_ = "d." + node.name;
  made_ = 0;
}

ValueId Backward::add(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  if (!status_.ok()) return {};
  auto made = graph_.add(op, fmt::format("{}.{}", prefix_, made_++), std::move(inputs), std::move(attrs));
  if (made.ok()) return *made;
  status_ = made.error();
  return {};
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

ValueId Backward::constant(Shape shape, double fill) {
  if (!status_.ok()) return {};
  const TensorType wanted{type(dy_).dtype, std::move(shape)};
  return graph_.weight(fmt::format("{}.{}", prefix_, made_++), wanted, weights_.add_fill(wanted, fill));
}

ValueId Backward::scaled(ValueId value, double factor) {
  return factor == 1 ? value : add(Op::Mul, {value, constant({}, factor)});
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
