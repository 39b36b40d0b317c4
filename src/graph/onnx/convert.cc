#include "graph/onnx/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/elements.h"
#include "graph/onnx/convert_tools.h"
#include "graph/onnx/onnx_types.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

Converted conv(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const Shape& w = c.type(1).shape;
  if (w.size() < 3) return invalid_input("a convolution without spatial axes");
  ASSIGN_OR_RETURN(Attrs attrs,
                   window_attrs(c, ints_attr(c.node, "kernel_shape").value_or(Shape(w.begin() + 2, w.end())), true));
  set_attr(attrs, "group", int_attr(c.node, "group", 1));
  return one_to_one(c, Op::Conv, std::move(attrs));
}

// The pads of a transposed convolution take away what is too much. Where the output's extent is given instead (by
// output_shape, or SAME: input * stride) the odd one is taken at the end for SAME_UPPER, in front for all else; opsets
// before 11 say the reverse.
Converted conv_transpose(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const Shape &x = c.type(0).shape, &w = c.type(1).shape;
  if (w.size() < 3 || x.size() != w.size()) return invalid_input("input and weights differ in their number of axes");
  const size_t spatial = w.size() - 2;
  const Shape kernel = ints_attr(c.node, "kernel_shape").value_or(Shape(w.begin() + 2, w.end()));
  if (kernel.size() != spatial) return invalid_input("kernel_shape has the wrong length");
  ASSIGN_OR_RETURN(auto strides, spatial_list(c, "strides", spatial, 1));
  ASSIGN_OR_RETURN(auto dilations, spatial_list(c, "dilations", spatial, 1));
  ASSIGN_OR_RETURN(auto more, spatial_list(c, "output_padding", spatial, 0));
  std::vector<int64_t> pads = ints_attr(c.node, "pads").value_or(std::vector<int64_t>(2 * spatial, 0));
  if (pads.size() != 2 * spatial) return invalid_input("pads have the wrong length");
  const std::string mode = string_attr(c.node, "auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "VALID" && mode != "NOTSET") return unsupported(fmt::format("auto_pad {}", mode));
  if (mode == "VALID") pads.assign(2 * spatial, 0);
  const auto wanted = ints_attr(c.node, "output_shape");
  // Some exporters write all the output's axes there; ONNX means the spatial ones.
  if (wanted && wanted->size() != spatial) return invalid_input("output_shape has the wrong length");
  for (size_t i = 0; (wanted || same) && i < spatial; ++i) {
    if (kernel[i] < 1 || kernel[i] > int64_t{1} << 20) return invalid_input(fmt::format("a kernel of {}", kernel[i]));
    if (wanted && ((*wanted)[i] < 1 || (*wanted)[i] > largest_extent))
      return invalid_input(fmt::format("an output_shape of {}", (*wanted)[i]));
    const int64_t target = wanted ? (*wanted)[i] : x[i + 2] * strides[i];
    int64_t total = (x[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i] - target;
    if (total < 0) {  // more than the windows reach: zeros behind
      more[i] -= total;
      total = 0;
    }
    const bool odd_behind = (mode == "SAME_UPPER") == (c.opset >= 11);
    pads[i] = odd_behind ? total / 2 : total - total / 2;
    pads[i + spatial] = total - pads[i];
  }
  Attrs attrs;
  set_attr(attrs, "kernel_shape", kernel);
  set_attr(attrs, "strides", std::move(strides));
  set_attr(attrs, "dilations", std::move(dilations));
  set_attr(attrs, "output_padding", std::move(more));
  set_attr(attrs, "pads", std::move(pads));
  set_attr(attrs, "group", int_attr(c.node, "group", 1));
  return one_to_one(c, Op::ConvTranspose, std::move(attrs));
}

Converted pool(const ConvertContext& c, Op op) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const auto kernel = ints_attr(c.node, "kernel_shape");
  if (!kernel) return invalid_input("kernel_shape is missing");
  if (op == Op::MaxPool && int_attr(c.node, "storage_order", 0) != 0) return unsupported("storage_order");
  ASSIGN_OR_RETURN(Attrs attrs, window_attrs(c, *kernel, op == Op::MaxPool));
  set_attr(attrs, "ceil_mode", int_attr(c.node, "ceil_mode", 0));
  if (op == Op::AveragePool) set_attr(attrs, "count_include_pad", int_attr(c.node, "count_include_pad", 0));
  return one_to_one(c, op, std::move(attrs));
}

Converted batch_norm(const ConvertContext& c) {
  if (int_attr(c.node, "training_mode", 0) != 0) return unsupported("training_mode");
  if (c.inputs.size() != 5) return invalid_input(fmt::format("{} inputs, BatchNormalization takes 5", c.inputs.size()));
  if (c.opset < 9 && int_attr(c.node, "spatial", 1) == 0) return unsupported("spatial = 0");
  Attrs attrs;
  set_attr(attrs, "epsilon", float_attr(c.node, "epsilon", 1e-5));
  return one_to_one(c, Op::BatchNormalization, std::move(attrs));
}

Converted layer_norm(const ConvertContext& c) {
  // Mean and InvStdDev may be named; import refuses whoever reads them.
  if (int_attr(c.node, "stash_type", 1) != 1) return unsupported("stash_type other than float");
  Attrs attrs;
  set_attr(attrs, "axis", int_attr(c.node, "axis", -1));
  set_attr(attrs, "epsilon", float_attr(c.node, "epsilon", static_cast<double>(1e-5f)));
  return one_to_one(c, Op::LayerNormalization, std::move(attrs));
}

// Softmax and its kin along one axis; `suffix` is empty for the node itself.
Converted along_axis(const ConvertContext& c, ValueId x, int64_t axis, const std::string& suffix) {
  const auto make = [&](Op op, std::vector<ValueId> inputs, Attrs attrs) {
    return suffix.empty() ? emit(c, op, std::move(inputs), std::move(attrs))
                          : emit_helper(c, op, suffix, std::move(inputs), std::move(attrs));
  };
  Attrs attrs;
  set_attr(attrs, "axis", axis);
  if (c.node.op == "Softmax") return make(Op::Softmax, {x}, std::move(attrs));
  if (c.node.op == "LogSoftmax") return make(Op::LogSoftmax, {x}, std::move(attrs));
  // Hardmax: one where the largest is, the first of them.
  const TensorType type = c.graph.type(x);
  if (!is_real(type.dtype)) return invalid_input(fmt::format("an operand of type {}", name_of(type.dtype)));
  set_attr(attrs, "keepdims", int64_t{0});
  set_attr(attrs, "select_last_index", int64_t{0});
  ASSIGN_OR_RETURN(const ValueId best, emit_helper(c, Op::ArgMax, ".argmax", {x}, std::move(attrs)));
  Attrs hot;
  set_attr(hot, "axis", axis);
  set_attr(hot, "depth", type.shape[static_cast<size_t>(axis)]);
  const std::vector<double> off_on = {0, 1};
  const TensorType pair{type.dtype, {2}};
  const ValueId values =
      c.graph.weight(c.name + ".values", pair, c.weights.add_bytes(pair, raw_of(type.dtype, off_on)));
  return make(Op::OneHot, {best, values}, std::move(hot));
}

// Before opset 13 they ran over all axes from `axis` on: the same as over the last one of a matrix.
Converted softmax(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const Shape shape = c.type(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = int_attr(c.node, "axis", c.opset < 13 ? 1 : -1);
  if (axis < -rank || axis >= rank) return invalid_input(fmt::format("axis {} of {} axes", axis, rank));
  if (axis < 0) axis += rank;
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  // [N, C, 1, 1] with axis 1: nothing but C to run over
  const bool flat = std::all_of(shape.begin() + axis + 1, shape.end(), [](int64_t extent) { return extent == 1; });
  if (c.opset >= 13 || flat) return along_axis(c, x, axis, "");
  // For a later axis the samples keep an axis of their own: [N, before, from axis on].
  Attrs flat_attrs, back;
  ValueId merged;
  if (axis <= 1) {
    set_attr(flat_attrs, "axis", axis);
    ASSIGN_OR_RETURN(merged, emit_helper(c, Op::Flatten, ".flatten", {x}, std::move(flat_attrs)));
  } else {
    const int64_t before = element_count(Shape(shape.begin() + 1, shape.begin() + axis));
    set_attr(flat_attrs, "shape", Shape{0, before, element_count(Shape(shape.begin() + axis, shape.end()))});
    ASSIGN_OR_RETURN(merged, emit_helper(c, Op::Reshape, ".flatten", {x}, std::move(flat_attrs)));
  }
  ASSIGN_OR_RETURN(const ValueId soft, along_axis(c, merged, axis <= 1 ? 1 : 2, ".matrix"));
  Shape original = shape;
  if (axis >= 1) original[0] = 0;
  set_attr(back, "shape", std::move(original));
  return emit(c, Op::Reshape, {soft}, std::move(back));
}

// Limits that are not constant, or of other types than floats: the larger of x and the low one, the smaller of that and
// the high one.
Converted clip_by_values(const ConvertContext& c) {
  ASSIGN_OR_RETURN(ValueId x, c.value(0));
  const bool high = c.given(2);
  if (c.given(1)) {
    ASSIGN_OR_RETURN(const ValueId low, c.value(1));
    ASSIGN_OR_RETURN(x, high ? emit_helper(c, Op::Max, ".max", {x, low}) : emit(c, Op::Max, {x, low}));
  }
  if (!high) return c.given(1) ? Converted(x) : emit(c, Op::Identity, {x});
  ASSIGN_OR_RETURN(const ValueId limit, c.value(2));
  return emit(c, Op::Min, {x, limit});
}

Converted clip(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  double low = std::numeric_limits<float>::lowest(), high = std::numeric_limits<float>::max();
  if (c.opset < 11) {
    low = float_attr(c.node, "min", low);
    high = float_attr(c.node, "max", high);
  } else if (c.type(0).dtype != DType::f32 || (c.given(1) && c.inputs[1].constant == nullptr) ||
             (c.given(2) && c.inputs[2].constant == nullptr)) {
    return clip_by_values(c);
  } else {
    for (const size_t i : {1, 2}) {
      if (!c.given(i)) continue;
      ASSIGN_OR_RETURN(const std::vector<double> limit, numbers_of(*c.inputs[i].constant, c.weights));
      if (limit.size() != 1) return invalid_input("a limit must be one number");
      (i == 1 ? low : high) = limit[0];
    }
  }
  Attrs attrs;
  set_attr(attrs, "min", low);
  set_attr(attrs, "max", high);
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Clip, {x}, std::move(attrs));
}

// Before opset 7 a second operand was broadcast only when asked, along an axis.
Converted binary(const ConvertContext& c, Op op) {
  if (c.opset < 7 && (int_attr(c.node, "broadcast", 0) != 0 || c.node.attrs.contains("axis")))
    return unsupported("the broadcast attribute");
  return one_to_one(c, op);
}

// Operands of other shapes than the result's are added one by one.
Converted sum(const ConvertContext& c) {
  if (c.inputs.size() <= 2) return one_to_one(c, c.inputs.size() == 2 ? Op::Add : Op::Sum);
  bool same = true;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.given(i)) return invalid_input("an input is missing");
    same = same && c.type(i).shape == c.type(0).shape;
  }
  if (same) return one_to_one(c, Op::Sum);
  ASSIGN_OR_RETURN(ValueId total, c.value(0));
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    ASSIGN_OR_RETURN(const ValueId next, c.value(i));
    ASSIGN_OR_RETURN(total, i + 1 == c.inputs.size() ? emit(c, Op::Add, {total, next})
                                                     : emit_helper(c, Op::Add, fmt::format(".{}", i), {total, next}));
  }
  return total;
}

// In inference Dropout is nothing, and its mask all true; training knows its ratio. One that a file does not fix is
// none.
Result<std::vector<ValueId>> dropout(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  if (c.given(2)) {
    ASSIGN_OR_RETURN(const auto training, number(c, "training_mode", 2));
    bool drops = *training != 0;
    if (drops && c.given(1) && c.inputs[1].constant != nullptr) {  // a ratio that is not there is one half
      ASSIGN_OR_RETURN(const auto ratio, number(c, "ratio", 1));
      drops = *ratio != 0;
    }
    if (drops) return unsupported("training_mode");
  }
  const Shape shape = c.type(0).shape;
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  double ratio = 0;
  if (!c.given(1) || c.inputs[1].constant != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<double> given, number(c, "ratio", 1));
    ratio = given.value_or(0.5);
  }
  ASSIGN_OR_RETURN(const ValueId out,
                   ratio == 0 ? emit(c, Op::Identity, {x}) : emit(c, Op::Dropout, {x}, {{"ratio", ratio}}));
  std::vector<ValueId> made = {out};
  if (wants_output(c, 1)) {
    TensorType mask{c.opset < 10 ? c.type(0).dtype : DType::boolean, shape};
    made.push_back(filled(c, ".mask", std::move(mask), 1));
  }
  return made;
}

Converted cast(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  DType to{};
  if (c.node.op == "CastLike") {
    if (!c.given(1)) return invalid_input("an input is missing");
    to = c.type(1).dtype;
  } else {
    const int64_t number = int_attr(c.node, "to", 0);
    const auto known = dtype_of_onnx(number);
    if (!known) return unsupported(fmt::format("a cast to element type {}", number));
    to = *known;
  }
  const bool same = c.type(0).dtype == to;
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  if (same) return emit(c, Op::Identity, {x});
  Attrs attrs;
  set_attr(attrs, "to", std::string(name_of(to)));
  return emit(c, Op::Cast, {x}, std::move(attrs));
}

Converted identity(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Identity, {x});
}

// Of another type: as if it were left out.
std::optional<AttrValue> given_attr(const OnnxNode& node, const AttrSpec& spec) {
  const auto at = node.attrs.find(std::string(spec.name));
  if (at == node.attrs.end()) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&at->second); number != nullptr && spec.kind == 'i') return *number;
  if (const auto* number = std::get_if<float>(&at->second); number != nullptr && spec.kind == 'f')
    return static_cast<double>(*number);
  if (const auto* word = std::get_if<std::string>(&at->second); word != nullptr && spec.kind == 's') return *word;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&at->second); list != nullptr && spec.kind == 'l')
    return *list;
  if (const auto* list = std::get_if<std::vector<float>>(&at->second); list != nullptr && spec.kind == 'd')
    return std::vector<double>(list->begin(), list->end());
  return std::nullopt;
}

// An attribute that later opsets have as an input.
Result<std::optional<AttrValue>> given_input(const ConvertContext& c, const AttrSpec& spec) {
  const std::string name(spec.name);
  const auto place = static_cast<size_t>(spec.onnx_input);
  std::optional<AttrValue> value;
  if (spec.kind == 'l') {
    ASSIGN_OR_RETURN(const auto list, integers(c, name, place));
    if (list) value = *list;
  } else if (spec.kind == 'i') {
    ASSIGN_OR_RETURN(const auto whole, whole_number(c, name, place));
    if (whole) value = *whole;
  } else {
    ASSIGN_OR_RETURN(const auto real, number(c, name, place));
    if (real) value = *real;
  }
  if (!value && !spec.has_usual) return invalid_input(fmt::format("{} is missing", name));
  return value;
}

// As the operator's row has it.
Result<std::vector<ValueId>> plain(const ConvertContext& c, Op op) {
  Attrs attrs;
  std::vector<bool> is_attr(c.inputs.size(), false);
  for (const AttrSpec& spec : info(op).attrs) {
    std::optional<AttrValue> given;
    if (spec.onnx_input >= 0) {
      ASSIGN_OR_RETURN(given, given_input(c, spec));
      const auto place = static_cast<size_t>(spec.onnx_input);
      if (place < is_attr.size() && !c.node.attrs.contains(std::string(spec.name))) is_attr[place] = true;
    } else {
      given = given_attr(c.node, spec);
    }
    if (given) set_attr(attrs, std::string(spec.name), std::move(*given));
  }
  std::vector<ValueId> inputs;
  std::vector<TensorType> types;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (is_attr[i]) continue;
    if (!c.given(i)) break;
    types.push_back(c.type(i));
    ASSIGN_OR_RETURN(inputs.emplace_back(), c.value(i));
  }
  add_defaults(op, types, attrs);
  std::vector<std::string> names;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) names.push_back(output_name(c, i));
  return c.graph.add_all(op, c.name, std::move(inputs), std::move(attrs), names);
}

// The first output is the only one.
Converted convert_one(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "Conv") return conv(c);
  if (op == "ConvTranspose") return conv_transpose(c);
  if (op == "LayerNormalization") return layer_norm(c);
  if (op == "MaxPool") return pool(c, Op::MaxPool);
  if (op == "AveragePool") return pool(c, Op::AveragePool);
  if (op == "BatchNormalization") return batch_norm(c);
  if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") return softmax(c);
  if (op == "Clip") return clip(c);
  if (op == "ReduceMean") return convert_reduction(c, Op::ReduceMean);
  if (op == "Sum") return sum(c);
  if (op == "Cast" || op == "CastLike") return cast(c);
  if (op == "Identity") return identity(c);
  if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
    ASSIGN_OR_RETURN(const Op known, parse_op(op));
    return binary(c, known);
  }
  if (op == "MatMul" && c.inputs.size() > 2)
    return invalid_input(fmt::format("{} inputs, MatMul takes 2", c.inputs.size()));
  if (op == "MatMul") return one_to_one(c, Op::MatMul);
  return unsupported("the operator is not supported");
}

}  // namespace

Result<ValueId> ConvertContext::value(size_t i) const {
  if (!given(i)) return invalid_input(fmt::format("input {} is missing", i));
  if (inputs[i].value.valid()) return inputs[i].value;
  return weight(inputs[i]);
}

const TensorType& ConvertContext::type(size_t i) const {
  return inputs[i].constant != nullptr ? inputs[i].constant->type : graph.type(inputs[i].value);
}

Result<std::vector<ValueId>> convert_node(const ConvertContext& c) {
  if (c.node.op == "Dropout") return dropout(c);
  for (const auto family : {convert_recurrent, convert_composite, convert_attention, convert_images, convert_quantized,
                            convert_shapes, convert_arrangement, convert_einsum}) {
    ASSIGN_OR_RETURN(auto made, family(c));
    if (made) return std::move(*made);
  }
  if (c.node.op == "Scatter") return plain(c, Op::ScatterElements);  // before opset 11
  if (const auto known = parse_op(c.node.op); known.ok() && has(*known, traits::plain_in_onnx)) return plain(c, *known);
  ASSIGN_OR_RETURN(const ValueId first, convert_one(c));
  return std::vector{first};
}

}  // namespace nlsplit::inline graph
