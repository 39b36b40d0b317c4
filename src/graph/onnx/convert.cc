#include "graph/onnx/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "graph/elements.h"
#include "graph/onnx/convert_tools.h"
#include "graph/onnx/onnx_types.h"
#include "graph/onnx/transposes.h"
#include "graph/ops_infer.h"

namespace nlsplit {
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
    if (x[i + 2] > largest_extent) return invalid_input(fmt::format("an input extent of {}", x[i + 2]));
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

Converted gemm(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "alpha", float_attr(c.node, "alpha", 1));
  set_attr(attrs, "beta", float_attr(c.node, "beta", 1));
  set_attr(attrs, "transA", int_attr(c.node, "transA", 0));
  set_attr(attrs, "transB", int_attr(c.node, "transB", 0));
  return one_to_one(c, Op::Gemm, std::move(attrs));
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

Converted instance_norm(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "epsilon", float_attr(c.node, "epsilon", static_cast<double>(1e-5f)));
  return one_to_one(c, Op::InstanceNormalization, std::move(attrs));
}

Converted lrn(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "alpha", float_attr(c.node, "alpha", 1e-4));
  set_attr(attrs, "beta", float_attr(c.node, "beta", 0.75));
  set_attr(attrs, "bias", float_attr(c.node, "bias", 1));
  set_attr(attrs, "size", int_attr(c.node, "size", 0));
  if (attr_int(attrs, "size") < 1) return invalid_input("size is missing");
  return one_to_one(c, Op::LRN, std::move(attrs));
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

Converted hard_sigmoid(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "alpha", float_attr(c.node, "alpha", static_cast<double>(0.2f)));
  set_attr(attrs, "beta", float_attr(c.node, "beta", 0.5));
  return one_to_one(c, Op::HardSigmoid, std::move(attrs));
}

Converted leaky_relu(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "alpha", float_attr(c.node, "alpha", static_cast<double>(0.01f)));
  return one_to_one(c, Op::LeakyRelu, std::move(attrs));
}

Converted concat(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "axis", int_attr(c.node, "axis", 1));
  return one_to_one(c, Op::Concat, std::move(attrs));
}

Converted flatten(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "axis", int_attr(c.node, "axis", 1));
  return one_to_one(c, Op::Flatten, std::move(attrs));
}

Converted transpose(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  std::vector<int64_t> reversed(c.type(0).shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), int64_t{0});
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  Transposed whole = seen_through(c.graph, {x, ints_attr(c.node, "perm").value_or(reversed)});
  if (changes_nothing(whole.perm)) return emit(c, Op::Identity, {whole.of});
  Attrs attrs;
  set_attr(attrs, "perm", std::move(whole.perm));
  return emit(c, Op::Transpose, {whole.of}, std::move(attrs));
}

// The same where the input is transposed: first to `shape`, then transposed.
Converted reshape_under(const ConvertContext& c, Transposed input, Shape shape) {
  Attrs attrs, turned;
  set_attr(attrs, "shape", std::move(shape));
  if (changes_nothing(input.perm)) return emit(c, Op::Reshape, {input.of}, std::move(attrs));
  ASSIGN_OR_RETURN(const ValueId shaped, emit_helper(c, Op::Reshape, ".reshape", {input.of}, std::move(attrs)));
  set_attr(turned, "perm", std::move(input.perm));
  return emit(c, Op::Transpose, {shaped}, std::move(turned));
}

Converted reshape(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const auto shape, integers(c, "shape", 1));
  if (!shape) return invalid_input("shape is missing");
  if (int_attr(c.node, "allowzero", 0) != 0 && std::ranges::find(*shape, 0) != shape->end()) {
    // No elements, whatever the operand.
    if (element_count(c.type(0).shape) != 0 || std::ranges::find(*shape, -1) != shape->end())
      return invalid_input("a shape without elements");
    RETURN_IF_ERROR(check_type({c.type(0).dtype, *shape}));
    return filled(c, ".empty", {c.type(0).dtype, *shape}, 0);
  }
  // Only the axes that `shape` copies are transposed: the others merge or split as well before.
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const Transposed input = seen_through(c.graph, {x, order_of(c.type(0).shape.size())});
  const auto copied = static_cast<size_t>(std::ranges::find_if(*shape, [](auto e) { return e != 0; }) - shape->begin());
  if (!changes_nothing(input.perm) && copied <= input.perm.size()) {
    bool rest_stays = true;
    for (size_t i = copied; i < input.perm.size(); ++i)
      rest_stays = rest_stays && input.perm[i] == static_cast<int64_t>(i);
    std::vector<int64_t> perm = order_of(shape->size());
    std::copy_n(input.perm.begin(), copied, perm.begin());
    if (rest_stays) return reshape_under(c, {input.of, std::move(perm)}, *shape);
  }
  return reshape_to(c, *shape);
}

Converted squeeze(const ConvertContext& c, bool inserts) {
  if (!c.given(0)) return invalid_input("an input is missing");
  ASSIGN_OR_RETURN(const auto axes, integers(c, "axes", 1));
  const Shape x = c.type(0).shape;
  Shape out;
  if (inserts) {
    if (!axes) return invalid_input("axes are missing");
    std::vector<bool> added(x.size() + axes->size(), false);
    for (const int64_t given : *axes) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of(given, added.size()));
      if (added[axis]) return invalid_input("an axis twice");
      added[axis] = true;
    }
    size_t next = 0;
    for (const bool is_new : added) out.push_back(is_new ? 1 : x[next++]);
    if (!added.empty() && !added[0] && !x.empty()) out[0] = 0;  // the samples' axis stays, whatever the batch
  } else {
    std::vector<bool> dropped(x.size(), false);
    for (size_t i = 0; !axes && i < x.size(); ++i) dropped[i] = x[i] == 1;  // without axes: all ones, the samples' too
    for (const int64_t given : axes.value_or(std::vector<int64_t>{})) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of(given, x.size()));
      if (x[axis] != 1) return invalid_input(fmt::format("squeezes an extent of {}", x[axis]));
      dropped[axis] = true;
    }
    ASSIGN_OR_RETURN(const ValueId value, c.value(0));
    const Transposed input = seen_through(c.graph, {value, order_of(x.size())});
    std::vector<bool> absent(x.size());  // of what is transposed
    for (size_t i = 0; i < x.size(); ++i) absent[static_cast<size_t>(input.perm[i])] = dropped[i];
    for (size_t i = 0; i < x.size(); ++i) {
      if (!absent[i]) out.push_back(i == 0 ? 0 : c.graph.type(input.of).shape[i]);
    }
    return reshape_under(c, {input.of, without_axes(input.perm, dropped)}, std::move(out));
  }
  return reshape_to(c, std::move(out));
}

// Other fills than one value: elements of x again, axis after axis.
Converted pad_by_elements(const ConvertContext& c, const std::string& mode, const std::vector<int64_t>& pads) {
  ASSIGN_OR_RETURN(ValueId x, c.value(0));
  const Shape shape = c.type(0).shape;
  const size_t rank = shape.size();
  size_t last = rank;  // axis that changes
  for (size_t axis = 0; axis < rank; ++axis) {
    if (pads[axis] != 0 || pads[axis + rank] != 0) last = axis;
  }
  if (last == rank) return emit(c, Op::Identity, {x});
  for (size_t axis = 0; axis <= last; ++axis) {
    if (pads[axis] == 0 && pads[axis + rank] == 0) continue;
    const int64_t extent = shape[axis], turn = std::max<int64_t>(2 * (extent - 1), 1);
    if (extent < 1) return invalid_input("it pads an empty axis with its elements");
    if (extent > int64_t{1} << 24) return unsupported(fmt::format("mode {} along an extent of {}", mode, extent));
    RETURN_IF_ERROR(c.spend(static_cast<double>(extent + std::abs(pads[axis]) + std::abs(pads[axis + rank]))));
    std::vector<int64_t> from;
    for (int64_t i = -pads[axis]; i < extent + pads[axis + rank]; ++i) {
      const int64_t around = (i % turn + turn) % turn;
      from.push_back(mode == "edge"   ? std::clamp<int64_t>(i, 0, extent - 1)
                     : mode == "wrap" ? (i % extent + extent) % extent
                     : extent == 1    ? 0
                                      : std::min(around, turn - around));
    }
    const ValueId indices = listed(c, fmt::format(".indices{}", axis), from, {static_cast<int64_t>(from.size())});
    Attrs attrs;
    set_attr(attrs, "axis", static_cast<int64_t>(axis));
    ASSIGN_OR_RETURN(x, axis == last
                            ? emit(c, Op::Gather, {x, indices}, std::move(attrs))
                            : emit_helper(c, Op::Gather, fmt::format(".axis{}", axis), {x, indices}, std::move(attrs)));
  }
  return x;
}

Converted pad(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const std::string mode = string_attr(c.node, "mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    return unsupported(fmt::format("mode {}", mode));
  ASSIGN_OR_RETURN(const auto given, integers(c, "pads", 1));
  if (!given) return invalid_input("pads are missing");
  std::vector<int64_t> pads = *given;
  const size_t rank = c.type(0).shape.size();
  if (c.given(3)) {  // those of some axes
    ASSIGN_OR_RETURN(const auto axes, integers(c, "axes", 3));
    if (pads.size() != 2 * axes->size()) return invalid_input("pads are not a begin and an end for every axis");
    pads.assign(2 * rank, 0);
    for (size_t i = 0; i < axes->size(); ++i) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of((*axes)[i], rank));
      pads[axis] = (*given)[i];
      pads[axis + rank] = (*given)[i + axes->size()];
    }
  }
  if (pads.size() != 2 * rank) return invalid_input("pads are not a begin and an end for every axis");
  if (mode != "constant") {
    constexpr int64_t most = int64_t{1} << 20;
    for (const int64_t pad : pads) {
      if (pad > most || pad < -most) return invalid_input(fmt::format("a pad of {}", pad));
    }
    return pad_by_elements(c, mode, pads);
  }
  ASSIGN_OR_RETURN(const auto value, number(c, "value", 2));
  Attrs attrs;
  set_attr(attrs, "pads", std::move(pads));
  set_attr(attrs, "value", value.value_or(0));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Pad, {x}, std::move(attrs));
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

// In inference Dropout is nothing, and its mask all true.
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
  ASSIGN_OR_RETURN(const ValueId out, emit(c, Op::Identity, {x}));
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

// The first output is the only one.
Converted convert_one(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "Conv") return conv(c);
  if (op == "ConvTranspose") return conv_transpose(c);
  if (op == "LayerNormalization") return layer_norm(c);
  if (op == "InstanceNormalization") return instance_norm(c);
  if (op == "MaxPool") return pool(c, Op::MaxPool);
  if (op == "AveragePool") return pool(c, Op::AveragePool);
  if (op == "Gemm") return gemm(c);
  if (op == "BatchNormalization") return batch_norm(c);
  if (op == "LRN") return lrn(c);
  if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") return softmax(c);
  if (op == "Clip") return clip(c);
  if (op == "HardSigmoid") return hard_sigmoid(c);
  if (op == "LeakyRelu") return leaky_relu(c);
  if (op == "Concat") return concat(c);
  if (op == "Flatten") return flatten(c);
  if (op == "Transpose") return transpose(c);
  if (op == "Reshape") return reshape(c);
  if (op == "Squeeze") return squeeze(c, false);
  if (op == "Unsqueeze") return squeeze(c, true);
  if (op == "ReduceMean") return convert_reduction(c, Op::ReduceMean);
  if (op == "Pad") return pad(c);
  if (op == "Sum") return sum(c);
  if (op == "Cast" || op == "CastLike") return cast(c);
  if (op == "Identity") return identity(c);
  if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
    ASSIGN_OR_RETURN(const Op known, parse_op(op));
    return binary(c, known);
  }
  if (op == "MatMul" && c.inputs.size() > 2)
    return invalid_input(fmt::format("{} inputs, MatMul takes 2", c.inputs.size()));
  // Those without attributes, the same in every opset.
  for (const Op known : {Op::MatMul, Op::Relu, Op::Sigmoid, Op::Tanh, Op::HardSwish, Op::Exp, Op::Sqrt, Op::Neg,
                         Op::Erf, Op::GlobalAveragePool}) {
    if (name_of(known) == op) return one_to_one(c, known);
  }
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
  for (const Op op : {Op::LSTM, Op::GRU, Op::RNN}) {
    if (name_of(op) == c.node.op) return convert_recurrent(c, op);
  }
  if (c.node.op == "Dropout") return dropout(c);
  for (const auto family :
       {convert_composite, convert_attention, convert_images, convert_quantized, convert_shapes, convert_plain}) {
    ASSIGN_OR_RETURN(auto made, family(c));
    if (made) return std::move(*made);
  }
  ASSIGN_OR_RETURN(const ValueId first, convert_one(c));
  return std::vector{first};
}

}  // namespace nlsplit
