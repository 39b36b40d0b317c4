// Functions of each element.
#include <fmt/format.h>

#include <limits>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec leaky_relu_attrs[] = {real("alpha", onnx_float(0.01f))};
constexpr AttrSpec hard_sigmoid_attrs[] = {real("alpha", onnx_float(0.2f)), real("beta", 0.5)};
constexpr AttrSpec gelu_attrs[] = {text("approximate", "none")};
constexpr AttrSpec clip_attrs[] = {real("max", onnx_float(std::numeric_limits<float>::max())),
                                   real("min", onnx_float(std::numeric_limits<float>::lowest()))};
constexpr AttrSpec alpha_attrs[] = {real("alpha", 1.0)};
constexpr AttrSpec selu_attrs[] = {real("alpha", onnx_float(1.67326319217681884765625f)),
                                   real("gamma", onnx_float(1.05070102214813232421875f))};
constexpr AttrSpec shrink_attrs[] = {real("bias", 0.0), real("lambd", 0.5)};
constexpr AttrSpec is_inf_attrs[] = {integer("detect_negative", 1), integer("detect_positive", 1)};
constexpr AttrSpec cast_attrs[] = {text("to")};

// ---- types

Inferred infer_gelu(Types inputs, const Attrs& attrs) {
  const std::string& form = attr_string(attrs, "approximate");
  if (form != "none" && form != "tanh")
    return invalid_input(fmt::format("approximate is \"{}\", not none or tanh", form));
  return infer_function(inputs, attrs);
}

Inferred infer_not(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type == DType::boolean; }, "bool"));
  return one_result(DType::boolean, inputs[0].shape);
}

Inferred infer_test(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(inputs, is_real, "floats"));
  return one_result(DType::boolean, inputs[0].shape);
}

Inferred infer_cast(Types inputs, const Attrs& attrs) {
  ASSIGN_OR_RETURN(const DType to, parse_dtype(attr_string(attrs, "to")));
  return one_result(to, inputs[0].shape);
}

// ---- work: a multiplication and an addition are two operations

// Scale, erf, and (1 + it) x / 2; or x (r + c x²), tanh, and the same.
Flops flops_gelu(Types, Types out, const Attrs& attrs) {
  return flops((attr_string(attrs, "approximate") == "tanh" ? 8 : 5) * count(out[0]));
}

// ---- gradients

// From the result where that says enough, because it is kept anyway.

// Unless alpha is negative y has x's sign.
void back_leaky_relu(Backward& b) {
  const bool same_sign = attr_float(b.attrs(), "alpha") >= 0;
  b.give(0, b.add(Op::LeakyReluGradient, {b.dy(), same_sign ? b.y() : b.x(0)}, b.attrs()));
}
// The slope where y is strictly between its limits.
void back_hard_sigmoid(Backward& b) {
  b.give(0, b.add(Op::HardSigmoidGradient, {b.dy(), b.y()}, {{"alpha", attr_float(b.attrs(), "alpha")}}));
}
// dx = dy e^x = dy y
void back_exp(Backward& b) { b.give(0, b.add(Op::Mul, {b.dy(), b.y()})); }
// dx = dy / (2 y)
void back_sqrt(Backward& b) { b.give(0, b.add(Op::Div, {b.dy(), b.add(Op::Add, {b.y(), b.y()})})); }
void back_neg(Backward& b) { b.give(0, b.add(Op::Neg, {b.dy()})); }
// dx = -dy y²
void back_reciprocal(Backward& b) {
  b.give(0, b.add(Op::Neg, {b.add(Op::Mul, {b.dy(), b.add(Op::Mul, {b.y(), b.y()})})}));
}
// dx = -dy sin x
void back_cos(Backward& b) { b.give(0, b.add(Op::Neg, {b.add(Op::Mul, {b.dy(), b.add(Op::Sin, {b.x(0)})})})); }
// dx = dy f(x)
template <Op f>
void by_function(Backward& b) {
  b.give(0, b.add(Op::Mul, {b.dy(), b.add(f, {b.x(0)})}));
}
// dx = dy / x
void back_log(Backward& b) { b.give(0, b.add(Op::Div, {b.dy(), b.x(0)})); }

}  // namespace

// clang-format off
//  operator         inputs     attributes          types           work                  batch        split        gradient                           traits
ROW(Relu,            1,      1, no_attrs,           infer_same,     flops_each,           keeps_first, first_alike, by_result<Op::ReluGradient>,       maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Sigmoid,         1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_result<Op::SigmoidGradient>,    maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Tanh,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_result<Op::TanhGradient>,       maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(HardSwish,       1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_operand<Op::HardSwishGradient>, maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Exp,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, back_exp,                          maps_elements | has_kernels | plain_in_onnx)
ROW(Sqrt,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, back_sqrt,                         maps_elements | has_kernels | plain_in_onnx)
ROW(Neg,             1,      1, no_attrs,           infer_same,     flops_each,           keeps_first, first_alike, back_neg,                          maps_elements | has_kernels | plain_in_onnx)
ROW(Erf,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_operand<Op::ErfGradient>,       maps_elements | has_kernels | plain_in_onnx)
ROW(LeakyRelu,       1,      1, leaky_relu_attrs,   infer_function, flops_each,           keeps_first, first_alike, back_leaky_relu,                   maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(HardSigmoid,     1,      1, hard_sigmoid_attrs, infer_function, flops_each,           keeps_first, first_alike, back_hard_sigmoid,                 maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Clip,            1,      1, clip_attrs,         infer_same,     flops_each,           keeps_first, first_alike, by_result<Op::ClipGradient>,       maps_elements | is_step | takes_steps | has_kernels)
ROW(Gelu,            1,      1, gelu_attrs,         infer_gelu,     flops_gelu,           keeps_first, first_alike, by_operand<Op::GeluGradient>,      maps_elements | is_step | takes_steps | has_kernels)
ROW(Abs,             1,      1, no_attrs,           infer_same,     flops_each,           keeps_first, first_alike, by_function<Op::Sign>,             maps_elements | plain_in_onnx)
ROW(Acos,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Acosh,           1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Asin,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Asinh,           1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Atan,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Atanh,           1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Ceil,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Cos,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, back_cos,                          maps_elements | plain_in_onnx)
ROW(Cosh,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_function<Op::Sinh>,             maps_elements | plain_in_onnx)
ROW(Floor,           1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Log,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, back_log,                          maps_elements | plain_in_onnx)
ROW(Mish,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Reciprocal,      1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, back_reciprocal,                   maps_elements | plain_in_onnx)
ROW(Round,           1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Sign,            1,      1, no_attrs,           infer_same,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Sin,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_function<Op::Cos>,              maps_elements | plain_in_onnx)
ROW(Sinh,            1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_function<Op::Cosh>,             maps_elements | plain_in_onnx)
ROW(Softplus,        1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, by_function<Op::Sigmoid>,          maps_elements | plain_in_onnx)
ROW(Softsign,        1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Tan,             1,      1, no_attrs,           infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Celu,            1,      1, alpha_attrs,        infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Elu,             1,      1, alpha_attrs,        infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Selu,            1,      1, selu_attrs,         infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Shrink,          1,      1, shrink_attrs,       infer_same,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(ThresholdedRelu, 1,      1, alpha_attrs,        infer_function, flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Not,             1,      1, no_attrs,           infer_not,      flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(BitwiseNot,      1,      1, no_attrs,           infer_bits,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(IsNaN,           1,      1, no_attrs,           infer_test,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(IsInf,           1,      1, is_inf_attrs,       infer_test,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements | plain_in_onnx)
ROW(Cast,            1,      1, cast_attrs,         infer_cast,     flops_each,           keeps_first, first_alike, no_gradient,                       maps_elements)
// clang-format on

}  // namespace nlsplit::inline graph
