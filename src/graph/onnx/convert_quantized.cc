// Quantised operators. QLinear… are written out as what they mean: back to floats, the operator, to integers again; so
// the products run on the kernels for f32. …Integer ones stay in integers.
#include <fmt/format.h>

#include <algorithm>

#include "graph/onnx/convert_tools.h"
#include "graph/onnx/onnx_types.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

Attrs with_axis(int64_t axis) {
  Attrs attrs;
  set_attr(attrs, "axis", axis);
  return attrs;
}

Status refuse_blocks(const ConvertContext& c) {
  if (int_attr(c.node, "block_size", 0) != 0) return unsupported("block_size");
  return ok_status();
}

Converted quantize(const ConvertContext& c) {
  RETURN_IF_ERROR(refuse_blocks(c));
  if (!c.given(1)) return invalid_input("the scale is missing");
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  ASSIGN_OR_RETURN(const ValueId scale, c.value(1));
  ValueId zero;
  if (c.given(2)) {
    ASSIGN_OR_RETURN(zero, c.value(2));
  } else {
    const int64_t said = int_attr(c.node, "output_dtype", 0);
    const auto type = dtype_of_onnx(said);
    if (said != 0 && !type) return unsupported(fmt::format("element type {}", said));
    zero = filled(c, ".zero", {said == 0 ? DType::u8 : *type, c.graph.type(scale).shape}, 0);
  }
  return emit(c, Op::QuantizeLinear, {x, scale, zero}, with_axis(int_attr(c.node, "axis", 1)));
}

Converted dequantize(const ConvertContext& c) {
  RETURN_IF_ERROR(refuse_blocks(c));
  return one_to_one(c, Op::DequantizeLinear, with_axis(int_attr(c.node, "axis", 1)));
}

// Input i, less its zero (input `zero`, if there is one) along the axis, as i32.
Converted shifted(const ConvertContext& c, size_t i, size_t zero, int64_t axis, const std::string& suffix) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(i));
  const auto as_i32 = [&](ValueId value, const std::string& name) {
    Attrs attrs;
    set_attr(attrs, "to", std::string(name_of(DType::i32)));
    return emit_helper(c, Op::Cast, name, {value}, std::move(attrs));
  };
  ASSIGN_OR_RETURN(const ValueId wide, as_i32(x, suffix));
  if (!c.given(zero)) return wide;
  ASSIGN_OR_RETURN(ValueId point, c.value(zero));
  ASSIGN_OR_RETURN(point, as_i32(point, suffix + ".zero"));
  const Shape own = c.graph.type(point).shape;
  if (own.size() == 1 && own[0] > 1) {  // one an index of the axis
    const size_t rank = c.graph.type(wide).shape.size();
    ASSIGN_OR_RETURN(const size_t at, axis_of(axis, rank));
    Shape shape(rank, 1);
    shape[at] = own[0];
    Attrs attrs;
    set_attr(attrs, "shape", std::move(shape));
    ASSIGN_OR_RETURN(point, emit_helper(c, Op::Reshape, suffix + ".zeros", {point}, std::move(attrs)));
  }
  return emit_helper(c, Op::Sub, suffix + ".shifted", {wide, point});
}

Converted matmul_integer(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId a, shifted(c, 0, 2, -2, ".a"));
  ASSIGN_OR_RETURN(const ValueId b, shifted(c, 1, 3, -1, ".b"));
  return emit(c, Op::MatMul, {a, b});
}

Result<Attrs> conv_attrs(const ConvertContext& c, size_t weights) {
  if (!c.given(0) || !c.given(weights)) return invalid_input("an input is missing");
  const Shape w = c.type(weights).shape;
  if (w.size() < 3) return invalid_input("a convolution without spatial axes");
  ASSIGN_OR_RETURN(Attrs attrs,
                   window_attrs(c, ints_attr(c.node, "kernel_shape").value_or(Shape(w.begin() + 2, w.end())), true));
  set_attr(attrs, "group", int_attr(c.node, "group", 1));
  return attrs;
}

// The padding is what stands for zero, and that is 0 once the zero is taken off.
Converted conv_integer(const ConvertContext& c) {
  ASSIGN_OR_RETURN(Attrs attrs, conv_attrs(c, 1));
  ASSIGN_OR_RETURN(const ValueId x, shifted(c, 0, 2, 1, ".x"));
  ASSIGN_OR_RETURN(const ValueId w, shifted(c, 1, 3, 0, ".w"));
  return emit(c, Op::Conv, {x, w}, std::move(attrs));
}

// Inputs at `first` (the tensor), then its scale and its zero, as floats.
Converted floats_of(const ConvertContext& c, size_t first, int64_t axis, const std::string& suffix) {
  std::vector<ValueId> inputs;
  for (size_t i = first; i < first + 3; ++i) {
    ASSIGN_OR_RETURN(inputs.emplace_back(), c.value(i));
  }
  return emit_helper(c, Op::DequantizeLinear, suffix, std::move(inputs), with_axis(axis));
}

// To integers by the scale and zero at `first`.
Converted integers_again(const ConvertContext& c, ValueId x, size_t first) {
  ASSIGN_OR_RETURN(const ValueId scale, c.value(first));
  ASSIGN_OR_RETURN(const ValueId zero, c.value(first + 1));
  return emit(c, Op::QuantizeLinear, {x, scale, zero}, with_axis(1));
}

Converted qlinear_matmul(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId a, floats_of(c, 0, -2, ".a"));
  ASSIGN_OR_RETURN(const ValueId b, floats_of(c, 3, -1, ".b"));
  ASSIGN_OR_RETURN(const ValueId y, emit_helper(c, Op::MatMul, ".product", {a, b}));
  return integers_again(c, y, 6);
}

// The bias is i32, by the scale of x times that of w.
Converted qlinear_conv(const ConvertContext& c) {
  ASSIGN_OR_RETURN(Attrs attrs, conv_attrs(c, 3));
  ASSIGN_OR_RETURN(const ValueId x, floats_of(c, 0, 1, ".x"));
  ASSIGN_OR_RETURN(const ValueId w, floats_of(c, 3, 0, ".w"));
  std::vector<ValueId> inputs = {x, w};
  if (c.given(8)) {
    ASSIGN_OR_RETURN(const ValueId bias, c.value(8));
    ASSIGN_OR_RETURN(const ValueId x_scale, c.value(1));
    ASSIGN_OR_RETURN(const ValueId w_scale, c.value(4));
    ASSIGN_OR_RETURN(const ValueId scale, emit_helper(c, Op::Mul, ".bias_scale", {x_scale, w_scale}));
    ASSIGN_OR_RETURN(inputs.emplace_back(), emit_helper(c, Op::DequantizeLinear, ".bias", {bias, scale}, with_axis(0)));
  }
  ASSIGN_OR_RETURN(const ValueId y, emit_helper(c, Op::Conv, ".conv", std::move(inputs), std::move(attrs)));
  return integers_again(c, y, 6);
}

// y_scale = (max(x, 0) - min(x, 0)) / 255, zero = round(clip(0 - min / y_scale)), as ONNX's function has it.
Result<std::vector<ValueId>> dynamic_quantize(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const size_t rank = c.graph.type(x).shape.size();
  const DType type = c.graph.type(x).dtype;
  const ValueId none = filled(c, ".none", {type, {}}, 0), steps = filled(c, ".steps", {type, {}}, 255);
  const auto extreme = [&](Op reduction, Op with_zero, const std::string& suffix) -> Converted {
    Attrs attrs;
    std::vector<int64_t> axes;
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
    set_attr(attrs, "axes", std::move(axes));
    set_attr(attrs, "keepdims", int64_t{0});
    ASSIGN_OR_RETURN(const ValueId found, emit_helper(c, reduction, suffix, {x}, std::move(attrs)));
    return emit_helper(c, with_zero, suffix + "0", {found, none});
  };
  ASSIGN_OR_RETURN(const ValueId high, extreme(Op::ReduceMax, Op::Max, ".max"));
  ASSIGN_OR_RETURN(const ValueId low, extreme(Op::ReduceMin, Op::Min, ".min"));
  ASSIGN_OR_RETURN(const ValueId range, emit_helper(c, Op::Sub, ".range", {high, low}));
  ASSIGN_OR_RETURN(const ValueId scale, c.graph.add(Op::Div, c.name + ".scale", {range, steps}, {}, output_name(c, 1)));
  ASSIGN_OR_RETURN(const ValueId ratio, emit_helper(c, Op::Div, ".ratio", {low, scale}));
  ASSIGN_OR_RETURN(const ValueId negative, emit_helper(c, Op::Neg, ".negative", {ratio}));
  Attrs limits, to;
  set_attr(limits, "min", 0.0);
  set_attr(limits, "max", 255.0);
  ASSIGN_OR_RETURN(const ValueId clipped, emit_helper(c, Op::Clip, ".clipped", {negative}, std::move(limits)));
  ASSIGN_OR_RETURN(const ValueId whole, emit_helper(c, Op::Round, ".whole", {clipped}));
  set_attr(to, "to", std::string(name_of(DType::u8)));
  ASSIGN_OR_RETURN(const ValueId zero,
                   c.graph.add(Op::Cast, c.name + ".zero", {whole}, std::move(to), output_name(c, 2)));
  ASSIGN_OR_RETURN(const ValueId y, emit(c, Op::QuantizeLinear, {x, scale, zero}, with_axis(1)));
  return std::vector{y, scale, zero};
}

}  // namespace

MaybeConverted convert_quantized(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "QuantizeLinear") return one(quantize(c));
  if (op == "DequantizeLinear") return one(dequantize(c));
  if (op == "MatMulInteger") return one(matmul_integer(c));
  if (op == "ConvInteger") return one(conv_integer(c));
  if (op == "QLinearMatMul") return one(qlinear_matmul(c));
  if (op == "QLinearConv") return one(qlinear_conv(c));
  if (op == "DynamicQuantizeLinear") return all(dynamic_quantize(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph
