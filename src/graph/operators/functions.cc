// Functions of each element.
#include <fmt/format.h>

#include <limits>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec leaky_relu_attrs[] = {real("alpha", onnx_float(0.01f))};
constexpr AttrSpec hard_sigmoid_attrs[] = {real("alpha", onnx_float(0.2f)), real("beta", 0.5)};
constexpr AttrSpec gelu_attrs[] = {text("approximate", "none")};
constexpr AttrSpec clip_attrs[] = {as_input(real("max", onnx_float(std::numeric_limits<float>::max())), 2),
                                   as_input(real("min", onnx_float(std::numeric_limits<float>::lowest())), 1)};
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
  if (!is_scaled(to)) return one_result(to, inputs[0].shape);
  if (to != DType::q8_0) return unsupported(fmt::format("a Cast to {}: only weights are of this type", name_of(to)));
  if (inputs[0].dtype != DType::f32)
    return unsupported(fmt::format("a Cast of {} to {}: that is of f32", to_string(inputs[0]), name_of(to)));
  RETURN_IF_ERROR(check_type({to, inputs[0].shape}));
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
ValueId product(Backward& b, ValueId x, ValueId y) { return b.add(Op::Mul, {x, y}); }
ValueId quotient(Backward& b, ValueId x, ValueId y) { return b.add(Op::Div, {x, y}); }

// dx = dy e^x = dy y
void back_exp(Backward& b) { b.give(0, product(b, b.dy(), b.y())); }
// dx = dy / (2 y)
void back_sqrt(Backward& b) { b.give(0, quotient(b, b.dy(), b.add(Op::Add, {b.y(), b.y()}))); }
void back_neg(Backward& b) { b.give(0, b.add(Op::Neg, {b.dy()})); }
// dx = -dy y²
void back_reciprocal(Backward& b) { b.give(0, b.add(Op::Neg, {product(b, b.dy(), b.square(b.y()))})); }
// dx = -dy sin x
void back_cos(Backward& b) { b.give(0, b.add(Op::Neg, {product(b, b.dy(), b.add(Op::Sin, {b.x(0)}))})); }
// dx = dy f(x)
template <Op f>
void by_function(Backward& b) {
  b.give(0, product(b, b.dy(), b.add(f, {b.x(0)})));
}
// dx = dy / x
void back_log(Backward& b) { b.give(0, quotient(b, b.dy(), b.x(0))); }
// dx = dy (1 + y²)
void back_tan(Backward& b) { b.give(0, product(b, b.dy(), b.plus(b.square(b.y()), 1))); }
// dx = dy / (1 + |x|)²
void back_softsign(Backward& b) { b.give(0, quotient(b, b.dy(), b.square(b.plus(b.add(Op::Abs, {b.x(0)}), 1)))); }
// y = x t with t = tanh(softplus(x)): dx = dy (t + x sigmoid(x) (1 - t²)). Misra, "Mish", 2019.
void back_mish(Backward& b) {
  const ValueId t = b.add(Op::Tanh, {b.add(Op::Softplus, {b.x(0)})});
  const ValueId rise = b.plus(b.scaled(b.square(t), -1), 1);
  const ValueId bend = product(b, product(b, b.x(0), b.add(Op::Sigmoid, {b.x(0)})), rise);
  b.give(0, product(b, b.dy(), b.add(Op::Add, {t, bend})));
}

// a x² + c
ValueId parabola(Backward& b, double a, double c) { return b.plus(b.scaled(b.square(b.x(0)), a), c); }
ValueId by_root_of(Backward& b, ValueId radicand) { return quotient(b, b.dy(), b.add(Op::Sqrt, {radicand})); }
void back_asin(Backward& b) { b.give(0, by_root_of(b, parabola(b, -1, 1))); }
void back_acos(Backward& b) { b.give(0, b.add(Op::Neg, {by_root_of(b, parabola(b, -1, 1))})); }
void back_asinh(Backward& b) { b.give(0, by_root_of(b, parabola(b, 1, 1))); }
void back_acosh(Backward& b) { b.give(0, by_root_of(b, parabola(b, 1, -1))); }
void back_atan(Backward& b) { b.give(0, quotient(b, b.dy(), parabola(b, 1, 1))); }
void back_atanh(Backward& b) { b.give(0, quotient(b, b.dy(), parabola(b, -1, 1))); }

// The slope is `below(x)` for x < 0, `above` elsewhere.
void by_side(Backward& b, ValueId below, double above) {
  const ValueId low = b.add(Op::Less, {b.x(0), b.constant({}, 0)});
  b.give(0, product(b, b.dy(), b.add(Op::Where, {low, below, b.constant({}, above)})));
}
ValueId exponential(Backward& b, double of_x, double factor) {  // factor e^(of_x x)
  return b.scaled(b.add(Op::Exp, {b.scaled(b.x(0), of_x)}), factor);
}
void back_celu(Backward& b) { by_side(b, exponential(b, 1 / attr_float(b.attrs(), "alpha"), 1), 1); }
void back_elu(Backward& b) { by_side(b, exponential(b, 1, attr_float(b.attrs(), "alpha")), 1); }
void back_selu(Backward& b) {
  const double gamma = attr_float(b.attrs(), "gamma");
  by_side(b, exponential(b, 1, gamma * attr_float(b.attrs(), "alpha")), gamma);
}

// dx = dy where `measure` is above the attribute, 0 elsewhere.
void where_above(Backward& b, ValueId measure, std::string_view attr) {
  const ValueId above = b.add(Op::Greater, {measure, b.constant({}, attr_float(b.attrs(), attr))});
  b.give(0, b.add(Op::Where, {above, b.dy(), b.constant({}, 0)}));
}
void back_shrink(Backward& b) { where_above(b, b.add(Op::Abs, {b.x(0)}), "lambd"); }
void back_thresholded_relu(Backward& b) { where_above(b, b.x(0), "alpha"); }

void back_cast(Backward& b) {
  b.give(0, b.add(Op::Cast, {b.dy()}, {{"to", std::string(name_of(b.type(b.x(0)).dtype))}}));
}

}  // namespace

// clang-format off
//  operator         inputs  attributes          types           work        batch        split        gradient                           traits
ROW(Relu,            1, 1,   no_attrs,           infer_same,     flops_each, keeps_first, first_alike, by_result<Op::ReluGradient>,       maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Sigmoid,         1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_result<Op::SigmoidGradient>,    maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Tanh,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_result<Op::TanhGradient>,       maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(HardSwish,       1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_operand<Op::HardSwishGradient>, maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Exp,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_exp,                          maps_elements | has_kernels | plain_in_onnx)
ROW(Sqrt,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_sqrt,                         maps_elements | has_kernels | plain_in_onnx)
ROW(Neg,             1, 1,   no_attrs,           infer_same,     flops_each, keeps_first, first_alike, back_neg,                          maps_elements | has_kernels | plain_in_onnx)
ROW(Erf,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_operand<Op::ErfGradient>,       maps_elements | has_kernels | plain_in_onnx)
ROW(LeakyRelu,       1, 1,   leaky_relu_attrs,   infer_function, flops_each, keeps_first, first_alike, back_leaky_relu,                   maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(HardSigmoid,     1, 1,   hard_sigmoid_attrs, infer_function, flops_each, keeps_first, first_alike, back_hard_sigmoid,                 maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Clip,            1, 1,   clip_attrs,         infer_same,     flops_each, keeps_first, first_alike, by_result<Op::ClipGradient>,       maps_elements | is_step | takes_steps | has_kernels)
ROW(Gelu,            1, 1,   gelu_attrs,         infer_gelu,     flops_gelu, keeps_first, first_alike, by_operand<Op::GeluGradient>,      maps_elements | is_step | takes_steps | has_kernels | plain_in_onnx)
ROW(Abs,             1, 1,   no_attrs,           infer_same,     flops_each, keeps_first, first_alike, by_function<Op::Sign>,             maps_elements | plain_in_onnx)
ROW(Acos,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_acos,                         maps_elements | plain_in_onnx)
ROW(Acosh,           1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_acosh,                        maps_elements | plain_in_onnx)
ROW(Asin,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_asin,                         maps_elements | plain_in_onnx)
ROW(Asinh,           1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_asinh,                        maps_elements | plain_in_onnx)
ROW(Atan,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_atan,                         maps_elements | plain_in_onnx)
ROW(Atanh,           1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_atanh,                        maps_elements | plain_in_onnx)
ROW(Ceil,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(Cos,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_cos,                          maps_elements | plain_in_onnx)
ROW(Cosh,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_function<Op::Sinh>,             maps_elements | plain_in_onnx)
ROW(Floor,           1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(Log,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_log,                          maps_elements | plain_in_onnx)
ROW(Mish,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_mish,                         maps_elements | plain_in_onnx | later_in_onnx)
ROW(Reciprocal,      1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_reciprocal,                   maps_elements | plain_in_onnx)
ROW(Round,           1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(Sign,            1, 1,   no_attrs,           infer_same,     flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(Sin,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_function<Op::Cos>,              maps_elements | plain_in_onnx)
ROW(Sinh,            1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_function<Op::Cosh>,             maps_elements | plain_in_onnx)
ROW(Softplus,        1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, by_function<Op::Sigmoid>,          maps_elements | plain_in_onnx)
ROW(Softsign,        1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_softsign,                     maps_elements | plain_in_onnx)
ROW(Tan,             1, 1,   no_attrs,           infer_function, flops_each, keeps_first, first_alike, back_tan,                          maps_elements | plain_in_onnx)
ROW(Celu,            1, 1,   alpha_attrs,        infer_function, flops_each, keeps_first, first_alike, back_celu,                         maps_elements | plain_in_onnx)
ROW(Elu,             1, 1,   alpha_attrs,        infer_function, flops_each, keeps_first, first_alike, back_elu,                          maps_elements | plain_in_onnx)
ROW(Selu,            1, 1,   selu_attrs,         infer_function, flops_each, keeps_first, first_alike, back_selu,                         maps_elements | plain_in_onnx)
ROW(Shrink,          1, 1,   shrink_attrs,       infer_same,     flops_each, keeps_first, first_alike, back_shrink,                       maps_elements | plain_in_onnx)
ROW(ThresholdedRelu, 1, 1,   alpha_attrs,        infer_function, flops_each, keeps_first, first_alike, back_thresholded_relu,             maps_elements | plain_in_onnx)
ROW(Not,             1, 1,   no_attrs,           infer_not,      flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(BitwiseNot,      1, 1,   no_attrs,           infer_bits,     flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx | later_in_onnx)
ROW(IsNaN,           1, 1,   no_attrs,           infer_test,     flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(IsInf,           1, 1,   is_inf_attrs,       infer_test,     flops_each, keeps_first, first_alike, flat,                              maps_elements | plain_in_onnx)
ROW(Cast,            1, 1,   cast_attrs,         infer_cast,     flops_each, keeps_first, first_alike, back_cast,                         maps_elements | is_first_alone | reads_scaled)
// clang-format on

}  // namespace nlsplit::inline graph
