// Normalizations.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit {
namespace {

constexpr AttrSpec batch_norm_attrs[] = {real("epsilon", 1e-5)};
constexpr AttrSpec layer_norm_attrs[] = {integer("axis", -1), real("epsilon", onnx_float(1e-5f))};
constexpr AttrSpec instance_norm_attrs[] = {real("epsilon", onnx_float(1e-5f))};
constexpr AttrSpec lrn_attrs[] = {real("alpha", 1e-4), real("beta", 0.75), real("bias", 1.0), integer("size")};
constexpr AttrSpec last_axis[] = {integer("axis", -1)};

// ---- types

Inferred infer_batch_norm(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  if (x.size() < 2) return invalid_input("BatchNormalization needs a channel axis");
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != Shape{x[1]})
      return invalid_input(fmt::format("parameter {} is {}, not [{}]", i, to_string(inputs[i]), x[1]));
  }
  return one_result(inputs[0].dtype, x);
}

Inferred infer_layer_norm(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  const Shape normalized(x.begin() + static_cast<std::ptrdiff_t>(axis), x.end());
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != normalized) {
      return invalid_input(fmt::format("parameter {} is {}, not of the shape that is normalized, {}", i,
                                       to_string(inputs[i]), to_string(TensorType{DType::f32, normalized})));
    }
  }
  return one_result(inputs[0].dtype, x);
}

Inferred infer_instance_norm(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  if (x.size() < 3) return invalid_input("InstanceNormalization needs channels and spatial axes");
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != Shape{x[1]})
      return invalid_input(fmt::format("parameter {} is {}, not [{}]", i, to_string(inputs[i]), x[1]));
  }
  return one_result(inputs[0].dtype, x);
}

Inferred infer_lrn(Types inputs, const Attrs& attrs) {
  if (inputs[0].shape.size() < 3) return invalid_input("LRN needs channels and spatial axes");
  const int64_t size = attr_int(attrs, "size");
  if (size < 1 || size > (int64_t{1} << 20)) return invalid_input(fmt::format("a window of {} channels", size));
  RETURN_IF_ERROR(floats(inputs));
  return one_result(inputs[0].dtype, inputs[0].shape);
}

// ---- work: a multiplication and an addition are two operations

Flops flops_batch_norm(Types, Types out, const Attrs&) { return flops(2 * count(out[0])); }  // scale and shift

Flops flops_normalize(Types, Types out, const Attrs&) {
  return flops(7 * count(out[0]));  // sum; subtract, square, sum; subtract, scale, shift
}

Flops flops_lrn(Types, Types out, const Attrs& attrs) {
  return flops((2 * static_cast<double>(attr_int(attrs, "size")) + 4) *
               count(out[0]));  // squares, sum; scale, shift, power, divide
}

Flops flops_softmax(Types, Types out, const Attrs&) {
  return flops(5 * count(out[0]));
}  // max, subtract, exp, sum, divide

// ---- the batch axis

bool keeps_layer_norm(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  return batched == 1 && axis.ok() && *axis != 0;
}

// ---- pieces (pieces.h)

bool layer_norm_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  return axis.ok() && q.axis < *axis && first_alike(q, piece);
}

bool norm_of_channels(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  for (size_t i = 1; q.axis == 1 && i < q.inputs.size(); ++i) piece.inputs[i] = along(0, q.begin, q.end);
  return true;
}

bool instance_norm_piece(const PieceQuery& q, NodePiece& piece) { return q.axis < 2 && norm_of_channels(q, piece); }
bool lrn_piece(const PieceQuery& q, NodePiece& piece) { return q.axis != 1 && first_alike(q, piece); }

// ---- gradients

// y = (x - mean) r scale + bias with r = 1 / sqrt(var + epsilon), mean and var given, not computed of x (ONNX's
// inference form; training with frozen statistics). dx = dy (r scale); dscale = r sum (x - mean) dy; dbias = sum dy.
Differentiated gradient_batch_norm(const GradientQuery& query) {
  if (asks(query, 3) || asks(query, 4))
    return unsupported("its mean and variance are given, not computed: it has no gradient by them");
  Gradient gradient;
  double sum = 0;
  if (asks(query, 0)) {
    sum += 1;
    gradient.keeps_inputs |= bit(1) | bit(4);
  }
  if (asks(query, 1)) {
    sum += 3;
    gradient.keeps_inputs |= bit(0) | bit(3) | bit(4);
  }
  if (asks(query, 2)) sum += 1;
  gradient.flops = flops(sum * results(query));
  return gradient;
}

// Over a row: z = (x - mean) r, y = scale z + bias; with g = scale dy: dx = r (g - mean(g) - z mean(g z)); dscale = sum
// dy z; dbias = sum dy (Ba, Kiros, Hinton, "Layer normalization", 2016; the derivation is batch normalization's, Ioffe
// and Szegedy 2015, section 3). Mean and r are not among the operator's results, so whoever needs z begins with them:
// sum; subtract, square, sum; subtract, times r (6). Then for dx: g, its sum, g z and its sum, and the four operations
// of the formula (8); for dscale: a product and a sum (2).
Differentiated gradient_normalize(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  if (asks(query, 0)) {
    sum += 14;
    gradient.keeps_inputs |= bit(0) | bit(1);
  }
  if (asks(query, 1)) {
    sum += 8;
    gradient.keeps_inputs |= bit(0);
  }
  if (asks(query, 2)) sum += 1;
  gradient.flops = flops(sum * results(query));
  return gradient;
}

// y = x / s^beta, s = bias + alpha / n times the sum of x² over n channels (Krizhevsky, Sutskever, Hinton, NeurIPS
// 2012). dx = dy / s^beta - (2 alpha beta / n) x times the sum of dy y / s over the same channels. s again: squares and
// sum (2 n), scale, shift, power (3); dy y / s (2) and its sum (n); the formula (4).
Differentiated gradient_lrn(const GradientQuery& query) {
  return each(query, 3 * static_cast<double>(attr_int(query.attrs, "size")) + 9, true, true);
}

// dx = y (dy - sum(dy y))
Differentiated gradient_softmax(const GradientQuery& query) { return each(query, 4, false, true); }

}  // namespace

// clang-format off
//  operator               inputs     attributes           types                work              batch             split                gradient             traits
ROW(BatchNormalization,    5,      5, batch_norm_attrs,    infer_batch_norm,    flops_batch_norm, keeps_first,      norm_of_channels,    gradient_batch_norm, takes_steps | has_kernels)
ROW(LayerNormalization,    2,      3, layer_norm_attrs,    infer_layer_norm,    flops_normalize,  keeps_layer_norm, layer_norm_piece,    gradient_normalize,  takes_steps | has_kernels)
ROW(InstanceNormalization, 3,      3, instance_norm_attrs, infer_instance_norm, flops_normalize,  keeps_first,      instance_norm_piece, gradient_normalize,  takes_steps | has_kernels | plain_in_onnx)
ROW(LRN,                   1,      1, lrn_attrs,           infer_lrn,           flops_lrn,        keeps_first,      lrn_piece,           gradient_lrn,        has_kernels | plain_in_onnx)
ROW(Softmax,               1,      1, last_axis,           infer_axis,          flops_softmax,    keeps_axis,       beside_axis,         gradient_softmax,    has_kernels)
ROW(LogSoftmax,            1,      1, last_axis,           infer_axis,          flops_softmax,    keeps_axis,       beside_axis,         no_gradient,         none)
// clang-format on

}  // namespace nlsplit
