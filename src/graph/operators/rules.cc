#include "graph/operators/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"

namespace nlsplit::inline graph {

Status check_form(const Operator& row, Types inputs, const Attrs& attrs) {
  const auto given = static_cast<int>(inputs.size());
  if (given < row.min_inputs || (row.max_inputs >= 0 && given > row.max_inputs)) {
    return invalid_input(fmt::format("{} inputs, {} takes {}{}", given, row.name, row.min_inputs,
                                     row.max_inputs < 0                 ? " or more"
                                     : row.max_inputs == row.min_inputs ? ""
                                                                        : fmt::format(" to {}", row.max_inputs)));
  }
  return check_attrs(row.name, row.attrs, attrs);
}

// ---- types

Inferred one_result(DType dtype, Shape shape) {
  double elements = 1;
  if (shape.size() > most_axes)
    return invalid_input(fmt::format("a result of {} axes; at most {} are supported", shape.size(), most_axes));
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > largest_extent)
      return invalid_input(fmt::format("an extent of {} in the result", extent));
    elements *= static_cast<double>(std::max<int64_t>(extent, 1));  // what stands beside a zero is multiplied elsewhere
  }
  if (elements > static_cast<double>(largest_extent)) return invalid_input("the result is too large");
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

Status same_type(Types inputs, bool (*accepts)(DType), std::string_view known) {
  for (const TensorType& type : inputs) {
    if (!accepts(type.dtype))
      return unsupported(fmt::format("operands of type {}; only {} are supported", name_of(type.dtype), known));
    if (type.dtype != inputs[0].dtype)
      return invalid_input(fmt::format("operands of types {} and {}", name_of(inputs[0].dtype), name_of(type.dtype)));
  }
  return ok_status();
}

Status floats(Types inputs) {
  return same_type(
      inputs, [](DType type) { return is_real(type) && type != DType::f64; }, "f32, f16 and bf16");
}

Status check_scalars(const TensorType& type, const Shape& shape) {
  if ((type.dtype == DType::i64 || type.dtype == DType::i32) && type.shape == shape) return ok_status();
  return invalid_input(
      fmt::format("{} where there must be {}", to_string(type), to_string(TensorType{DType::i64, shape})));
}

Status any_type(Types inputs) {
  return same_type(
      inputs, [](DType) { return true; }, "");
}

Status numbers(Types inputs) {
  return same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers");
}

Status reals(Types inputs) { return same_type(inputs, is_real, "floats"); }

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return invalid_input(fmt::format("extents {} and {} do not broadcast", x, y));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Result<size_t> axis_of(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return invalid_input(fmt::format("axis {} of a tensor with {} axes", axis, rank));
  return static_cast<size_t>(axis < 0 ? axis + r : axis);
}

Status check_direction(const Attrs& attrs) {
  if (find_attr(attrs, "direction") == nullptr) return ok_status();
  const std::string& direction = attr_string(attrs, "direction");
  if (direction == "LEFT" || direction == "RIGHT") return ok_status();
  return invalid_input(fmt::format("a direction \"{}\"", direction));
}

Inferred infer_same(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  for (const TensorType& type : inputs) {
    if (type.shape != inputs[0].shape)
      return invalid_input(fmt::format("operands {} and {} differ", to_string(inputs[0]), to_string(type)));
  }
  return one_result(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_function(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs));
  return one_result(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_broadcast(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(inputs[0].shape, inputs[1].shape));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_axis(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  if (const auto axis = axis_of(attr_int(attrs, "axis"), inputs[0].shape.size()); !axis) return axis.error();
  return one_result(inputs[0].dtype, inputs[0].shape);
}

namespace {

Result<Shape> broadcast_all(Types inputs) {
  Shape out;
  for (const TensorType& type : inputs) {
    ASSIGN_OR_RETURN(out, broadcast_shapes(out, type.shape));
  }
  return out;
}

}  // namespace

Inferred broadcast_to(Types inputs, DType result) {
  ASSIGN_OR_RETURN(Shape out, broadcast_all(inputs));
  return one_result(result, std::move(out));
}

Inferred infer_bits(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(inputs, is_whole, "integers"));
  RETURN_IF_ERROR(check_direction(attrs));
  return broadcast_to(inputs, inputs[0].dtype);
}

Status check_forward(Op op, Types operands, const Attrs& attrs, const TensorType& dy) {
  ASSIGN_OR_RETURN(const std::vector<TensorType> made, info(op).infer(operands, attrs));
  if (made[0].shape != dy.shape)
    return invalid_input(fmt::format("a gradient {} of a result {}", to_string(dy), to_string(made[0])));
  return ok_status();
}

// ---- batch

bool along_another_axis(const TensorType& type, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), type.shape.size());
  return axis.ok() && *axis != 0;
}

// Broadcasting element-wise: axis 0 of the result must be the samples' axis of every operand that has one, and no
// other's.
bool keeps_broadcast(Types in, uint64_t batched, const Attrs&) {
  size_t rank = 0;
  for (const TensorType& type : in) rank = std::max(rank, type.shape.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0;
    if (has_samples && in[i].shape.size() != rank) return false;
    if (!has_samples && in[i].shape.size() == rank && in[i].shape[0] != 1) return false;
  }
  return batched != 0;
}

bool keeps_axis(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && along_another_axis(in[0], attrs);
}

bool keeps_all(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == all_of(in) && along_another_axis(in[0], attrs);
}

// ---- pieces

Region broadcast_part(const PieceQuery& q, const TensorType& type) {
  const size_t missing = q.out.size() - type.shape.size();
  if (q.axis < missing || type.shape[q.axis - missing] != q.out[q.axis]) return {};
  return along(q.axis - missing, q.begin, q.end);
}

bool broadcast_piece(const PieceQuery& q, NodePiece& piece) {
  for (size_t i = 0; i < q.inputs.size(); ++i) piece.inputs[i] = broadcast_part(q, q.inputs[i]);
  return true;
}

// Every operand has the part, unless the operator works along that axis.
bool beside_axis(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.inputs[0].shape.size());
  if (!axis.ok() || *axis == q.axis) return false;
  std::ranges::fill(piece.inputs, same_axis(q));
  return true;
}

// ---- gradients

ValueId with_axes_kept(Backward& b, ValueId reduced, const Shape& axes) {
  Shape kept = b.shape(b.x(0));
  for (const int64_t one : axes) kept[axis_of(one, kept.size()).value()] = 1;
  return b.reshaped(reduced, std::move(kept));
}

void spread(Backward& b, ValueId dy, const Shape& axes) {
  const ValueId kept = with_axes_kept(b, dy, axes);
  const Shape x = b.shape(b.x(0));
  b.give(0, b.shape(kept) == x ? kept : b.add(Op::Expand, {kept}, {{"shape", x}}));
}

ValueId quotient_or_zero(Backward& b, ValueId numerator, ValueId divisor) {
  const ValueId zero = b.constant({}, 0);
  return b.add(Op::Where, {b.add(Op::Equal, {divisor, zero}), zero, b.add(Op::Div, {numerator, divisor})});
}

ValueId where_equal(Backward& b, ValueId one, ValueId other) { return b.as_floats(b.add(Op::Equal, {one, other})); }

double share(const Backward& b) {
  return static_cast<double>(element_count(b.shape(b.y()))) / static_cast<double>(element_count(b.shape(b.x(0))));
}

Shape all_but_channels(const Shape& shape) {
  Shape axes{0};
  for (size_t axis = 2; axis < shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return axes;
}

}  // namespace nlsplit::inline graph
