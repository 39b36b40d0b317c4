// Functions of elements that stand at the same place, with numpy broadcasting.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit {
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

// y = a + b: da = db = dy.
Differentiated gradient_add(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    if (!asks(query, i)) continue;
    if (query.inputs[i].shape == query.outputs[0].shape) gradient.passes |= bit(i);
    sum += sum_if_broadcast(query, i);
  }
  gradient.flops = flops(sum);
  return gradient;
}

// y = a - b: da = dy, db = -dy.
Differentiated gradient_sub(const GradientQuery& query) {
  ASSIGN_OR_RETURN(Gradient gradient, gradient_add(query));
  if ((gradient.passes & bit(1)) != 0) gradient.flops += flops(results(query));
  gradient.passes &= ~bit(1);
  return gradient;
}

// y = a b: da = dy b, db = dy a.
Differentiated gradient_mul(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  for (size_t i = 0; i < 2; ++i) {
    if (!asks(query, i)) continue;
    sum += results(query) + sum_if_broadcast(query, i);
    gradient.keeps_inputs |= bit(1 - i);
  }
  gradient.flops = flops(sum);
  return gradient;
}

// y = a / b: da = dy / b, db = -dy y / b.
Differentiated gradient_div(const GradientQuery& query) {
  Gradient gradient;
  gradient.keeps_inputs = bit(1);
  gradient.keeps_output = asks(query, 1);
  double sum = 0;
  if (asks(query, 0)) sum += results(query) + sum_if_broadcast(query, 0);
  if (asks(query, 1)) sum += 3 * results(query) + sum_if_broadcast(query, 1);
  gradient.flops = flops(sum);
  return gradient;
}

}  // namespace

// clang-format off
//  operator        inputs      attributes   types            work        batch            split            gradient       traits
ROW(Add,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, gradient_add,  is_step_with_operand | takes_steps | has_kernels)
ROW(Sub,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, gradient_sub,  is_step_with_operand | takes_steps | has_kernels)
ROW(Mul,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, gradient_mul,  is_step_with_operand | takes_steps | has_kernels)
ROW(Div,            2,      2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, gradient_div,  is_step_with_operand | takes_steps | has_kernels)
ROW(Sum,            1,      -1, no_attrs,    infer_same,      flops_sum,  keeps_broadcast, broadcast_piece, gradient_pass, takes_steps | has_kernels)
ROW(Pow,            2,      2,  no_attrs,    infer_pow,       flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Mod,            2,      2,  mod_attrs,   infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(PRelu,          2,      2,  no_attrs,    infer_prelu,     flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(BitShift,       2,      2,  shift_attrs, infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(BitwiseAnd,     2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(BitwiseOr,      2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(BitwiseXor,     2,      2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(And,            2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Or,             2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Xor,            2,      2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Equal,          2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Greater,        2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(GreaterOrEqual, 2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Less,           2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(LessOrEqual,    2,      2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Where,          3,      3,  no_attrs,    infer_where,     no_flops,   keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Max,            1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Mean,           1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
ROW(Min,            1,      -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, no_gradient,   plain_in_onnx)
// clang-format on

}  // namespace nlsplit
