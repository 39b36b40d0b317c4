// Normalizations.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
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

// By its own mean and variance, of one type with the parameters.
Inferred infer_batch_norm_training(Types inputs, const Attrs& attrs) {
  if (const Inferred forward = infer_batch_norm(inputs, attrs); !forward.ok()) return forward.error();
  if (element_count(inputs[0].shape) == 0) return invalid_input("the mean of no element");
  return std::vector<TensorType>{inputs[0], inputs[1], inputs[1]};
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

// Sum; subtract, square, sum; scale and shift.
Flops flops_batch_norm_training(Types, Types out, const Attrs&) { return flops(6 * count(out[0])); }

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

// Mean and variance are constants: y = (x - mean) r scale + bias with r = 1 / sqrt(var + epsilon), channel by channel.
void back_batch_norm(Backward& b) {
  const Shape& x = b.shape(b.x(0));
  if (b.wants(3) || b.wants(4)) return b.fail(unsupported("BatchNormalization's mean and variance are not trained"));
  Shape along(x.size(), 1);
  along[1] = x[1];
  if (b.wants(0)) {
    const ValueId deviation =
        b.add(Op::Sqrt, {b.add(Op::Add, {b.x(4), b.constant({}, attr_float(b.attrs(), "epsilon"))})});
    b.give(0, b.add(Op::Mul, {b.dy(), b.reshaped(b.add(Op::Div, {b.x(1), deviation}), along)}));
  }
  if (b.wants(1)) b.give(1, b.add(Op::BatchNormalizationScaleGradient, {b.dy(), b.x(0), b.x(3), b.x(4)}, b.attrs()));
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(x)));
}
// The mean and the variance follow x; nothing but the running ones reads them.
void back_batch_norm_training(Backward& b) {
  if (b.has_dy(1) || b.has_dy(2))
    return b.fail(unsupported("the loss depends on a batch's mean and variance by another way"));
  if (b.wants(0)) {
    b.give(0, b.add(Op::BatchNormalizationTrainingGradient, {b.dy(), b.x(0), b.x(1), b.y(1), b.y(2)}, b.attrs()));
  }
  if (b.wants(1)) b.give(1, b.add(Op::BatchNormalizationScaleGradient, {b.dy(), b.x(0), b.y(1), b.y(2)}, b.attrs()));
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(b.shape(b.x(0)))));
}
// The normalized x is computed again.
void back_layer_norm(Backward& b) {
  if (b.wants(0)) b.give(0, b.add(Op::LayerNormalizationGradient, {b.dy(), b.x(0), b.x(1)}, b.attrs()));
  if (b.wants(1)) {
    const ValueId normalized = b.add(Op::LayerNormalization, {b.x(0), b.constant(b.shape(b.x(1)), 1)}, b.attrs());
    b.give(1, b.sum_to(b.add(Op::Mul, {b.dy(), normalized}), b.shape(b.x(1))));
  }
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}
// Each plane is a row of a LayerNormalization.
void back_instance_norm(Backward& b) {
  const Shape x = b.shape(b.x(0));
  const int64_t plane = element_count(x) / (x[0] * x[1]);
  Shape along(x.size(), 1);
  along[1] = x[1];
  const ValueId rows = b.reshaped(b.x(0), {x[0], x[1], plane}), ones = b.constant({plane}, 1);
  const Attrs attrs{{"axis", int64_t{2}}, {"epsilon", attr_float(b.attrs(), "epsilon")}};
  if (b.wants(0)) {
    const ValueId dy = b.reshaped(b.add(Op::Mul, {b.dy(), b.reshaped(b.x(1), along)}), {x[0], x[1], plane});
    b.give(0, b.reshaped(b.add(Op::LayerNormalizationGradient, {dy, rows, ones}, attrs), x));
  }
  if (b.wants(1)) {
    const ValueId normalized = b.reshaped(b.add(Op::LayerNormalization, {rows, ones}, attrs), x);
    b.give(1, b.summed(b.add(Op::Mul, {b.dy(), normalized}), all_but_channels(x)));
  }
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(x)));
}

}  // namespace

// clang-format off
//  operator               inputs     attributes           types                work              batch             split                gradient                           traits
ROW(BatchNormalization,    5,      5, batch_norm_attrs,    infer_batch_norm,    flops_batch_norm, keeps_first,      norm_of_channels,    back_batch_norm,                   takes_steps | has_kernels)
ROW(BatchNormalizationTraining, 3, 3, batch_norm_attrs,    infer_batch_norm_training, flops_batch_norm_training, keeps_none, no_split, back_batch_norm_training,          has_kernels | not_in_onnx)
ROW(LayerNormalization,    2,      3, layer_norm_attrs,    infer_layer_norm,    flops_normalize,  keeps_layer_norm, layer_norm_piece,    back_layer_norm,                   takes_steps | has_kernels)
ROW(InstanceNormalization, 3,      3, instance_norm_attrs, infer_instance_norm, flops_normalize,  keeps_first,      instance_norm_piece, back_instance_norm,                takes_steps | has_kernels | plain_in_onnx)
ROW(LRN,                   1,      1, lrn_attrs,           infer_lrn,           flops_lrn,        keeps_first,      lrn_piece,           by_operand<Op::LRNGradient>,       has_kernels | plain_in_onnx)
ROW(Softmax,               1,      1, last_axis,           infer_axis,          flops_softmax,    keeps_axis,       beside_axis,         by_result<Op::SoftmaxGradient>,    has_kernels)
ROW(LogSoftmax,            1,      1, last_axis,           infer_axis,          flops_softmax,    keeps_axis,       beside_axis,         by_result<Op::LogSoftmaxGradient>, none)
// clang-format on

}  // namespace nlsplit::inline graph
