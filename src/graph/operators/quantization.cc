// Quantization.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

// ---- types

// One number for all, or one an index of the axis.
Status check_scale(Types inputs, const Attrs& attrs) {
  if (!is_real(inputs[1].dtype)) return invalid_input(fmt::format("a scale {}", to_string(inputs[1])));
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (element_count(inputs[i].shape) == 1 && inputs[i].shape.size() <= 1) continue;
    ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), inputs[0].shape.size()));
    if (inputs[i].shape != Shape{inputs[0].shape[axis]}) {
      return invalid_input(fmt::format("{} is {}, neither one number nor one for each of {}",
                                       i == 1 ? "the scale" : "the zero", to_string(inputs[i]), inputs[0].shape[axis]));
    }
  }
  return ok_status();
}

Inferred infer_quantize(Types inputs, const Attrs& attrs) {
  if (!is_real(inputs[0].dtype) && inputs[0].dtype != DType::i32)
    return unsupported(fmt::format("operands of type {}", name_of(inputs[0].dtype)));
  RETURN_IF_ERROR(check_scale(inputs, attrs));
  if (!is_whole(inputs[2].dtype)) return invalid_input(fmt::format("a zero {}", to_string(inputs[2])));
  return one_result(inputs[2].dtype, inputs[0].shape);
}

Inferred infer_dequantize(Types inputs, const Attrs& attrs) {
  if (!is_whole(inputs[0].dtype)) return unsupported(fmt::format("operands of type {}", name_of(inputs[0].dtype)));
  RETURN_IF_ERROR(check_scale(inputs, attrs));
  if (inputs.size() > 2 && inputs[2].dtype != inputs[0].dtype)
    return invalid_input(fmt::format("a zero {} for {}", to_string(inputs[2]), to_string(inputs[0])));
  return one_result(inputs[1].dtype, inputs[0].shape);
}

// ---- work: a multiplication and an addition are two operations

// Scale, round, shift, and the two bounds; or shift and scale.
Flops flops_quantize(Types, Types out, const Attrs&) { return flops(5 * count(out[0])); }

Flops flops_dequantize(Types, Types out, const Attrs&) { return flops(2 * count(out[0])); }

// ---- the batch axis

bool keeps_quantize(Types in, uint64_t batched, const Attrs& attrs) {
  const bool one_for_all =
      std::ranges::all_of(in.subspan(1), [](const TensorType& type) { return element_count(type.shape) == 1; });
  return batched == 1 && (one_for_all || along_another_axis(in[0], attrs));
}

// ---- pieces (pieces.h)

bool quantize_piece(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  for (size_t i = 1; i < q.inputs.size(); ++i) {
    const Shape& shape = q.inputs[i].shape;
    if (element_count(shape) == 1) continue;
    if (shape.size() != 1 || !axis.ok()) return false;
    if (*axis == q.axis) piece.inputs[i] = along(0, q.begin, q.end);
  }
  return true;
}

// ---- gradients

// y = (x - zero) scale of whole numbers x: by the scale dy (x - zero), over all that it is for.
void back_dequantize(Backward& b) {
  const Shape x = b.shape(b.x(0)), scale = b.shape(b.x(1));
  ValueId shifted = b.as_floats(b.x(0));
  Shape along(x.size(), 1), others;
  const size_t axis = element_count(scale) == 1 ? x.size() : axis_of(attr_int(b.attrs(), "axis"), x.size()).value();
  for (size_t i = 0; i < x.size(); ++i) {
    if (i == axis)
      along[i] = x[i];
    else
      others.push_back(static_cast<int64_t>(i));
  }
  if (b.inputs() > 2) {
    ValueId zero = b.as_floats(b.x(2));
    if (element_count(b.shape(zero)) > 1) zero = b.reshaped(zero, along);
    shifted = b.add(Op::Sub, {shifted, zero});
  }
  b.give(1, b.reshaped(b.summed(b.add(Op::Mul, {b.dy(), shifted}), std::move(others)), scale));
}

}  // namespace

// clang-format off
//  operator          inputs  attributes types             work              batch           split           gradient         traits
ROW(QuantizeLinear,   3, 3,   axis_1,    infer_quantize,   flops_quantize,   keeps_quantize, quantize_piece, flat,            stays_f32)
ROW(DequantizeLinear, 2, 3,   axis_1,    infer_dequantize, flops_dequantize, keeps_quantize, quantize_piece, back_dequantize, stays_f32)
// clang-format on

}  // namespace nlsplit::inline graph
