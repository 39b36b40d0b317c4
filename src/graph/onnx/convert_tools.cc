#include "graph/onnx/convert_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/elements.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {

Converted emit(const ConvertContext& c, Op op, std::vector<ValueId> inputs, Attrs attrs) {
  return c.graph.add(op, c.name, std::move(inputs), std::move(attrs), c.node.outputs[0]);
}

// An extra node in front of or behind the main one.
Converted emit_helper(const ConvertContext& c, Op op, const std::string& suffix, std::vector<ValueId> inputs,
                      Attrs attrs) {
  return c.graph.add(op, c.name + suffix, std::move(inputs), std::move(attrs));
}

Converted one_to_one(const ConvertContext& c, Op op, Attrs attrs) {
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

Result<std::optional<double>> number(const ConvertContext& c, const std::string& attr, size_t i) {
  if (c.node.attrs.contains(attr)) {
    if (const auto* value = std::get_if<float>(&c.node.attrs.at(attr))) return std::optional<double>(*value);
    return std::optional<double>(static_cast<double>(int_attr(c.node, attr, 0)));
  }
  if (!c.given(i)) return std::optional<double>();
  if (c.inputs[i].constant == nullptr) return unsupported(fmt::format("{} that is not constant", attr));
  ASSIGN_OR_RETURN(const std::vector<double> values, numbers_of(*c.inputs[i].constant, c.weights));
  if (values.size() != 1) return invalid_input(fmt::format("{} must be one number", attr));
  return std::optional(values[0]);
}

Result<std::optional<int64_t>> whole_number(const ConvertContext& c, const std::string& attr, size_t i) {
  ASSIGN_OR_RETURN(const std::optional<double> given, number(c, attr, i));
  if (!given) return std::optional<int64_t>();
  if (!(std::abs(*given) < 0x1p53)) return invalid_input(fmt::format("{} of {}", attr, *given));
  return std::optional(static_cast<int64_t>(*given));
}

ValueId filled(const ConvertContext& c, const std::string& suffix, TensorType type, double value) {
  const ContentId content = c.weights.add_fill(type, value);
  return c.graph.weight(c.name + suffix, std::move(type), content);
}

ValueId listed(const ConvertContext& c, const std::string& suffix, const std::vector<int64_t>& values, Shape shape,
               DType type) {
  const Constant constant = integer_constant(values, std::move(shape), type, c.weights);
  return c.graph.weight(c.name + suffix, constant.type, constant.content);
}

Result<ValueId> mask(const ConvertContext& c, const std::string& suffix, int64_t rows, int64_t columns,
                     const std::function<bool(int64_t row, int64_t column)>& is_set) {
  const auto size = static_cast<double>(rows) * static_cast<double>(columns);
  if (size > 0x1p28) return unsupported(fmt::format("a mask of {} x {}", rows, columns));
  RETURN_IF_ERROR(c.spend(size));
  std::string raw;
  raw.reserve(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) raw += is_set(row, column) ? '\1' : '\0';
  }
  const TensorType type{DType::boolean, {rows, columns}};
  return c.graph.weight(c.name + suffix, type, c.weights.add_bytes(type, std::move(raw)));
}

MaybeConverted one(Converted made) {
  if (!made) return made.error();
  return std::optional(std::vector{*made});
}

MaybeConverted all(Result<std::vector<ValueId>> made) {
  if (!made) return made.error();
  return std::optional(std::move(made).value());
}

std::string output_name(const ConvertContext& c, size_t i) {
  return i < c.node.outputs.size() ? c.node.outputs[i] : std::string();
}

bool wants_output(const ConvertContext& c, size_t i) { return !output_name(c, i).empty(); }

}  // namespace nlsplit::inline graph
