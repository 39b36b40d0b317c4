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
  const ValueId ratio = b.add(Op::Div, {b.add(Op::Mul, {b.dy(), b.y()}), b.x(1)});
  b.give(1, b.sum_to(b.add(Op::Neg, {ratio}), b.shape(b.x(1))));
}
// y = x^e: dx = dy e x^(e - 1), de = dy y log x. Where e or x is 0, so is the gradient: 0 times a pole is none.
void back_pow(Backward& b) {
  const auto power = [&](ValueId e) { return b.add(Op::Pow, {b.x(0), e}); };
  const auto unless_zero = [&](ValueId of, ValueId value) {
    const ValueId zero = b.constant({}, 0);
    return b.add(Op::Where, {b.add(Op::Equal, {of, zero}), zero, b.add(Op::Mul, {b.dy(), value})});
  };
  const auto known = b.wants(1) ? std::nullopt : b.number(b.x(1));
  if (b.wants(0) && known && *known != 0) {
    const ValueId x = *known == 2 ? b.x(0) : power(b.constant({}, *known - 1));
    b.give(0, b.sum_to(b.add(Op::Mul, {b.dy(), b.scaled(x, *known)}), b.shape(b.x(0))));
  } else if (b.wants(0)) {
    const ValueId e = b.as_floats(b.x(1));
    b.give(0, b.sum_to(unless_zero(e, b.add(Op::Mul, {e, power(b.plus(e, -1))})), b.shape(b.x(0))));
  }
  if (b.wants(1))
    b.give(1, b.sum_to(unless_zero(b.x(0), b.add(Op::Mul, {b.y(), b.add(Op::Log, {b.x(0)})})), b.shape(b.x(1))));
}
// y = a - n c with a whole number n: da = dy, dc = -dy n.
void back_mod(Backward& b) {
  if (b.wants(0)) b.give(0, b.sum_to(b.dy(), b.shape(b.x(0))));
  if (!b.wants(1)) return;
  const ValueId n = b.add(Op::Div, {b.add(Op::Sub, {b.y(), b.x(0)}), b.x(1)});
  b.give(1, b.sum_to(b.add(Op::Mul, {b.dy(), n}), b.shape(b.x(1))));
}
// Below 0 y = x s: dx = dy s, ds = dy x.
void back_prelu(Backward& b) {
  const ValueId zero = b.constant({}, 0), below = b.add(Op::Less, {b.x(0), zero});
  const auto product = [&](size_t i) { return b.add(Op::Mul, {b.dy(), b.x(i)}); };
  if (b.wants(0)) b.give(0, b.add(Op::Where, {below, product(1), b.dy()}));
  if (b.wants(1)) b.give(1, b.sum_to(b.add(Op::Where, {below, product(0), zero}), b.shape(b.x(1))));
}
// Max and Min: operands that are equally large share, as in PyTorch.
void back_extreme(Backward& b) {
  std::vector<ValueId> taken;
  for (size_t i = 0; i < b.inputs(); ++i) taken.push_back(where_equal(b, b.x(i), b.y()));
  const ValueId part = b.add(Op::Div, {b.dy(), b.add(Op::Sum, taken)});
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(b.add(Op::Mul, {taken[i], part}), b.shape(b.x(i))));
  }
}
void back_mean(Backward& b) {
  const ValueId part = b.scaled(b.dy(), 1 / static_cast<double>(b.inputs()));
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(part, b.shape(b.x(i))));
  }
}
void back_where(Backward& b) {
  const ValueId zero = b.constant({}, 0);
  if (b.wants(1)) b.give(1, b.sum_to(b.add(Op::Where, {b.x(0), b.dy(), zero}), b.shape(b.x(1))));
  if (b.wants(2)) b.give(2, b.sum_to(b.add(Op::Where, {b.x(0), zero, b.dy()}), b.shape(b.x(2))));
}

}  // namespace

// clang-format off
//  operator        inputs attributes   types            work        batch            split            gradient      traits
ROW(Add,            2, 2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_add,     is_step_with_operand | takes_steps | has_kernels)
ROW(Sub,            2, 2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_sub,     is_step_with_operand | takes_steps | has_kernels)
ROW(Mul,            2, 2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_mul,     is_step_with_operand | takes_steps | has_kernels)
ROW(Div,            2, 2,  no_attrs,    infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_div,     is_step_with_operand | takes_steps | has_kernels)
ROW(Sum,            1, -1, no_attrs,    infer_same,      flops_sum,  keeps_broadcast, broadcast_piece, back_add,     takes_steps | has_kernels)
ROW(Pow,            2, 2,  no_attrs,    infer_pow,       flops_each, keeps_broadcast, broadcast_piece, back_pow,     plain_in_onnx)
ROW(Mod,            2, 2,  mod_attrs,   infer_broadcast, flops_each, keeps_broadcast, broadcast_piece, back_mod,     plain_in_onnx)
ROW(PRelu,          2, 2,  no_attrs,    infer_prelu,     flops_each, keeps_broadcast, broadcast_piece, back_prelu,   plain_in_onnx)
ROW(BitShift,       2, 2,  shift_attrs, infer_bits,      flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(BitwiseAnd,     2, 2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(BitwiseOr,      2, 2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(BitwiseXor,     2, 2,  no_attrs,    infer_bits,      flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(And,            2, 2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Or,             2, 2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Xor,            2, 2,  no_attrs,    infer_logic,     flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Equal,          2, 2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Greater,        2, 2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(GreaterOrEqual, 2, 2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Less,           2, 2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(LessOrEqual,    2, 2,  no_attrs,    infer_compare,   flops_each, keeps_broadcast, broadcast_piece, flat,         plain_in_onnx)
ROW(Where,          3, 3,  no_attrs,    infer_where,     no_flops,   keeps_broadcast, broadcast_piece, back_where,   plain_in_onnx)
ROW(Max,            1, -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, back_extreme, plain_in_onnx)
ROW(Mean,           1, -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, back_mean,    plain_in_onnx)
ROW(Min,            1, -1, no_attrs,    infer_variadic,  flops_sum,  keeps_broadcast, broadcast_piece, back_extreme, plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
