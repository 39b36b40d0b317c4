#include "graph/onnx/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "graph/onnx/transposes.h"
#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

using Converted = Result<ValueId>;

Converted emit(const ConvertContext& c, Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
  return c.graph.add(op, c.name, std::move(inputs), std::move(attrs), c.node.outputs[0]);
}

// An extra node in front of or behind the main one.
Converted emit_helper(const ConvertContext& c, Op op, const std::string& suffix, std::vector<ValueId> inputs,
                      Attrs attrs = {}) {
  return c.graph.add(op, c.name + suffix, std::move(inputs), std::move(attrs));
}

Converted one_to_one(const ConvertContext& c, Op op, Attrs attrs = {}) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.given(i)) break;
    ASSIGN_OR_RETURN(inputs.emplace_back(), c.value(i));
  }
  return emit(c, op, std::move(inputs), std::move(attrs));
}

// kernel_shape, strides, pads, dilations with their defaults, auto_pad resolved (ONNX: SAME_UPPER puts the odd one at
// the end).
Result<Attrs> window_attrs(const ConvertContext& c, const Shape& kernel, bool dilated) {
  const size_t spatial = kernel.size();
  const Shape& x = c.type(0).shape;
  if (x.size() != spatial + 2 || spatial == 0)
    return invalid_input(fmt::format("a {}-axis kernel over {}", spatial, to_string(c.type(0))));
  std::vector<int64_t> strides = ints_attr(c.node, "strides").value_or(std::vector<int64_t>(spatial, 1));
  std::vector<int64_t> dilations = ints_attr(c.node, "dilations").value_or(std::vector<int64_t>(spatial, 1));
  std::vector<int64_t> pads = ints_attr(c.node, "pads").value_or(std::vector<int64_t>(2 * spatial, 0));
  if (strides.size() != spatial || dilations.size() != spatial || pads.size() != 2 * spatial) {
    return invalid_input("strides, dilations or pads have the wrong length");
  }
  for (const auto& list : {kernel, strides, dilations}) {
    for (const int64_t extent : list) {
      if (extent < 1 || extent > (int64_t{1} << 20))
        return invalid_input(fmt::format("a kernel, stride or dilation of {}", extent));
    }
  }
  if (!dilated && dilations != std::vector<int64_t>(spatial, 1)) return unsupported("dilations of a pool");
  const std::string mode = string_attr(c.node, "auto_pad", "NOTSET");
  if (mode == "VALID") {
    pads.assign(2 * spatial, 0);
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      const int64_t out = (x[i + 2] + strides[i] - 1) / strides[i];
      const int64_t total = std::max<int64_t>(0, (out - 1) * strides[i] + reach - x[i + 2]);
      const int64_t less = total / 2, more = total - less;
      pads[i] = mode == "SAME_UPPER" ? less : more;
      pads[i + spatial] = mode == "SAME_UPPER" ? more : less;
    }
  } else if (mode != "NOTSET") {
    return unsupported(fmt::format("auto_pad {}", mode));
  }
  Attrs attrs;
  set_attr(attrs, "kernel_shape", kernel);
  set_attr(attrs, "strides", std::move(strides));
  set_attr(attrs, "pads", std::move(pads));
  if (dilated) set_attr(attrs, "dilations", std::move(dilations));
  return attrs;
}

Converted conv(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const Shape& w = c.type(1).shape;
  if (w.size() != 4) return unsupported("convolutions over other than two spatial axes");
  ASSIGN_OR_RETURN(Attrs attrs,
                   window_attrs(c, ints_attr(c.node, "kernel_shape").value_or(Shape(w.begin() + 2, w.end())), true));
  set_attr(attrs, "group", int_attr(c.node, "group", 1));
  return one_to_one(c, Op::Conv, std::move(attrs));
}

// A list of one integer a spatial axis.
Result<std::vector<int64_t>> spatial_list(const ConvertContext& c, const std::string& name, size_t spatial,
                                          int64_t otherwise) {
  std::vector<int64_t> list = ints_attr(c.node, name).value_or(std::vector<int64_t>(spatial, otherwise));
  if (list.size() != spatial) return invalid_input(fmt::format("{} has the wrong length", name));
  constexpr int64_t most = int64_t{1} << 20;
  for (const int64_t value : list) {
    if (value < 0 || value > most) return invalid_input(fmt::format("{} of {}", name, value));
  }
  return list;
}

// The pads of a transposed convolution take away what is too much. Where the output's extent is given instead (by
// output_shape, or SAME: input * stride) the odd one is taken at the end for SAME_UPPER, in front for all else; opsets
// before 11 say the reverse.
Converted conv_transpose(const ConvertContext& c) {
  if (!c.given(0) || !c.given(1)) return invalid_input("an input is missing");
  const Shape &x = c.type(0).shape, &w = c.type(1).shape;
  if (x.size() != 4 || w.size() != 4) return unsupported("transposed convolutions over other than two spatial axes");
  constexpr size_t spatial = 2;
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

// Before opset 13 Softmax ran over all axes from `axis` on: the same as over the last one of a matrix.
Converted softmax(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const Shape shape = c.type(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = int_attr(c.node, "axis", c.opset < 13 ? 1 : -1);
  if (axis < -rank || axis >= std::max<int64_t>(rank, 1))
    return invalid_input(fmt::format("axis {} of {} axes", axis, rank));
  if (axis < 0) axis += rank;
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  Attrs attrs;
  if (c.opset >= 13 || axis == rank - 1) {
    set_attr(attrs, "axis", axis);
    return emit(c, Op::Softmax, {x}, std::move(attrs));
  }
  const bool flat = std::all_of(shape.begin() + axis + 1, shape.end(), [](int64_t extent) { return extent == 1; });
  if (flat) {  // [N, C, 1, 1] with axis 1: nothing but C to run over
    set_attr(attrs, "axis", axis);
    return emit(c, Op::Softmax, {x}, std::move(attrs));
  }
  // For a later axis the samples keep an axis of their own: [N, before, from axis on].
  Attrs flat_attrs, back;
  ValueId merged;
  if (axis <= 1) {
    set_attr(flat_attrs, "axis", axis);
    ASSIGN_OR_RETURN(merged, emit_helper(c, Op::Flatten, ".flatten", {x}, std::move(flat_attrs)));
    set_attr(attrs, "axis", int64_t{1});
  } else {
    const int64_t before = element_count(Shape(shape.begin() + 1, shape.begin() + axis));
    set_attr(flat_attrs, "shape", Shape{0, before, element_count(Shape(shape.begin() + axis, shape.end()))});
    ASSIGN_OR_RETURN(merged, emit_helper(c, Op::Reshape, ".flatten", {x}, std::move(flat_attrs)));
    set_attr(attrs, "axis", int64_t{2});
  }
  ASSIGN_OR_RETURN(const ValueId soft, emit_helper(c, Op::Softmax, ".matrix", {merged}, std::move(attrs)));
  Shape original = shape;
  if (axis >= 1) original[0] = 0;
  set_attr(back, "shape", std::move(original));
  return emit(c, Op::Reshape, {soft}, std::move(back));
}

Converted clip(const ConvertContext& c) {
  double low = std::numeric_limits<float>::lowest(), high = std::numeric_limits<float>::max();
  if (c.opset < 11) {
    low = float_attr(c.node, "min", low);
    high = float_attr(c.node, "max", high);
  } else {
    for (const size_t i : {1, 2}) {
      if (!c.given(i)) continue;
      if (c.inputs[i].constant == nullptr) return unsupported("limits that are not constant");
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

// Integers given as an attribute by older opsets and as input `i` by newer ones.
Result<std::optional<std::vector<int64_t>>> integers(const ConvertContext& c, const std::string& attr, size_t i) {
  if (auto given = ints_attr(c.node, attr)) return given;
  if (!c.given(i)) return std::optional<std::vector<int64_t>>();
  if (c.inputs[i].constant == nullptr) return unsupported(fmt::format("{} that is not constant", attr));
  ASSIGN_OR_RETURN(std::vector<int64_t> values, integers_of(*c.inputs[i].constant, c.weights));
  return std::optional(std::move(values));
}

Converted reshape_to(const ConvertContext& c, Shape shape) {
  Attrs attrs;
  set_attr(attrs, "shape", std::move(shape));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Reshape, {x}, std::move(attrs));
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
  if (int_attr(c.node, "allowzero", 0) != 0) return unsupported("allowzero");
  ASSIGN_OR_RETURN(const auto shape, integers(c, "shape", 1));
  if (!shape) return invalid_input("shape is missing");
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

Converted reduce_mean(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  ASSIGN_OR_RETURN(auto axes, integers(c, "axes", 1));
  const bool none = !axes || axes->empty();
  if (none && int_attr(c.node, "noop_with_empty_axes", 0) != 0) return one_to_one(c, Op::Identity);
  if (none) {
    axes.emplace(c.type(0).shape.size());
    std::iota(axes->begin(), axes->end(), int64_t{0});
  }
  Attrs attrs;
  set_attr(attrs, "axes", *axes);
  set_attr(attrs, "keepdims", int_attr(c.node, "keepdims", 1));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::ReduceMean, {x}, std::move(attrs));
}

Converted pad(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  if (const std::string mode = string_attr(c.node, "mode", "constant"); mode != "constant")
    return unsupported(fmt::format("mode {}", mode));
  if (c.given(3)) return unsupported("axes");
  ASSIGN_OR_RETURN(const auto pads, integers(c, "pads", 1));
  if (!pads) return invalid_input("pads are missing");
  double value = float_attr(c.node, "value", 0);
  if (c.given(2)) {
    if (c.inputs[2].constant == nullptr) return unsupported("a value that is not constant");
    ASSIGN_OR_RETURN(const std::vector<double> numbers, numbers_of(*c.inputs[2].constant, c.weights));
    if (numbers.size() != 1) return invalid_input("the value must be one number");
    value = numbers[0];
  }
  Attrs attrs;
  set_attr(attrs, "pads", *pads);
  set_attr(attrs, "value", value);
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Pad, {x}, std::move(attrs));
}

// Before opset 7 a second operand was broadcast only when asked, along an axis.
Converted binary(const ConvertContext& c, Op op) {
  if (c.opset < 7 && (int_attr(c.node, "broadcast", 0) != 0 || c.node.attrs.contains("axis")))
    return unsupported("the broadcast attribute");
  return one_to_one(c, op);
}

Converted sum(const ConvertContext& c) {
  return c.inputs.size() == 2 ? one_to_one(c, Op::Add) : one_to_one(c, Op::Sum);
}

// In inference Dropout is nothing; its mask output does not exist here.
Converted dropout(const ConvertContext& c) {
  if (c.given(2)) {
    if (c.inputs[2].constant == nullptr) return unsupported("a training_mode that is not constant");
    ASSIGN_OR_RETURN(const std::vector<double> training, numbers_of(*c.inputs[2].constant, c.weights));
    if (training.size() != 1 || training[0] != 0) return unsupported("training_mode");
  }
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Identity, {x});
}

// Everything is f32 here, so a cast to it is nothing.
Converted cast(const ConvertContext& c) {
  constexpr int64_t to_float = 1;
  if (!c.given(0)) return invalid_input("an input is missing");
  if (int_attr(c.node, "to", 0) != to_float || c.type(0).dtype != DType::f32)
    return unsupported("a cast that changes the type");
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Identity, {x});
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
  if (op == "Softmax") return softmax(c);
  if (op == "Clip") return clip(c);
  if (op == "HardSigmoid") return hard_sigmoid(c);
  if (op == "LeakyRelu") return leaky_relu(c);
  if (op == "Concat") return concat(c);
  if (op == "Flatten") return flatten(c);
  if (op == "Transpose") return transpose(c);
  if (op == "Reshape") return reshape(c);
  if (op == "Squeeze") return squeeze(c, false);
  if (op == "Unsqueeze") return squeeze(c, true);
  if (op == "ReduceMean") return reduce_mean(c);
  if (op == "Pad") return pad(c);
  if (op == "Sum") return sum(c);
  if (op == "Dropout") return dropout(c);
  if (op == "Cast") return cast(c);
  if (op == "Identity") return identity(c);
  if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
    ASSIGN_OR_RETURN(const Op known, parse_op(op));
    return binary(c, known);
  }
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
  ASSIGN_OR_RETURN(const ValueId first, convert_one(c));
  return std::vector{first};
}

}  // namespace nlsplit
