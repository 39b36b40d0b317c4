// Functions of elements that stand at the same place, with numpy broadcasting.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec mod_attrs[] = {integer("fmod", 0)};
constexpr AttrSpec shift_attrs[] = {text("direction")};

// ---- types

Inferred infer_pow(Types inputs, const Attrs&) {
  for (const TensorType& type : inputs) {
    if (type.dtype == DType::boolean) return unsupported("operands of type bool; only numbers are supported");
  }
  return broadcast_to(inputs, inputs[0].dtype);
}

Inferred infer_prelu(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  ASSIGN_OR_RETURN(const Shape out, broadcast_shapes(inputs[0].shape, inputs[1].shape));
  if (out != inputs[0].shape)
    return invalid_input(fmt::format("a slope {} for {}", to_string(inputs[1]), to_string(inputs[0])));
  return one_result(inputs[0].dtype, out);
}

Inferred infer_logic(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type == DType::boolean; }, "bool"));
  return broadcast_to(inputs, DType::boolean);
}

Inferred infer_compare(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType) { return true; }, ""));
  return broadcast_to(inputs, DType::boolean);
}

Inferred infer_where(Types inputs, const Attrs&) {
  if (inputs[0].dtype != DType::boolean) return invalid_input(fmt::format("a condition {}", to_string(inputs[0])));
  RETURN_IF_ERROR(same_type(
      inputs.subspan(1), [](DType) { return true; }, ""));
  return broadcast_to(inputs, inputs[1].dtype);
}

Inferred infer_variadic(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  return broadcast_to(inputs, inputs[0].dtype);
}

// ---- gradients

void back_add(Backward& b) {
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(b.dy(), b.shape(b.x(i))));
  }
}
void back_sub(Backward& b) {
  if (b.wants(0)) b.give(0, b.sum_to(b.dy(), b.shape(b.x(0))));
  if (b.wants(1)) b.give(1, b.add(Op::Neg, {b.sum_to(b.dy(), b.shape(b.x(1)))}));
}
void back_mul(Backward& b) {
  for (size_t i = 0; i < 2; ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(b.add(Op::Mul, {b.dy(), b.x(1 - i)}), b.shape(b.x(i))));
  }
}
// y = a / b: da = dy / b, db = -dy y / b.
void back_div(Backward& b) {
  if (b.wants(0)) b.give(0, b.sum_to(b.add(Op::Div, {b.dy(), b.x(1)}), b.shape(b.x(0))));
  if (!b.wants(1)) return;
  const ValueId quotient = b.add(Op::Div, {b.add(Op::Mul, {b.dy(), b.y()}), b.x(1)});
  b.give(1, b.sum_to(b.add(Op::Neg, {quotient}), b.shape(b.x(1))));
}
void back_where(Backward& b) {
  const ValueId zero = b.constant({}, 0);
  if (b.wants(1)) b.give(1, b.sum_to(b.add(Op::Where, {b.x(0), b.dy(), zero}), b.shape(b.x(1))));
  if (b.wants(2)) b.give(2, b.sum_to(b.add(Op::Where, {b.x(0), zero, b.dy()}), b.shape(b.x(2))));
}

}  // namespace

// clang-format off
//  operator        inputs      attributes   types            work        batch            split            gradient     traits
ROW(Add,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_add,    is_step_with_operand | takes_steps | has_kernels)
ROW(Sub,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_sub,    is_step_with_operand | takes_steps | has_kernels)
ROW(Mul,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_mul,    is_step_with_operand | takes_steps | has_kernels)
ROW(Div,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_div,    is_step_with_operand | takes_steps | has_kernels)
ROW(Sum,            1,      -1, no_attrs,    infer_same,      flops_sum,  keeps_broadcast, broadcast_piece, back_add,    takes_steps | has_kernels)
ROW(Pow,            2,      2,  no_attrs,    infer_pow,       flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Mod,            2,      2,  mod_attrs,   infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(PRelu,          2,      2,  no_attrs,    infer_prelu,     flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(BitShift,       2,      2,  shift_attrs, infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(BitwiseAnd,     2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(BitwiseOr,      2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(BitwiseXor,     2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(And,            2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Or,             2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Xor,            2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Equal,          2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Greater,        2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(GreaterOrEqual, 2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Less,           2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(LessOrEqual,    2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Where,          3,      3,  no_attrs,    infer_where,     no_flops,   keeps_broadcast, broadcast_piece, back_where,  plain_in_onnx)
ROW(Max,            1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Mean,           1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
ROW(Min,            1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient, plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
