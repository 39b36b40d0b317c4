#include "graph/onnx/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/elements.h"
#include "graph/operators/operator.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

constexpr int64_t small = 1 << 16;  // elements; larger integer tensors are data, not shapes

template <class T>
const T* attr(const OnnxNode& node, const std::string& name) {
  const auto found = node.attrs.find(name);
  return found == node.attrs.end() ? nullptr : std::get_if<T>(&found->second);
}

using Maybe = Result<std::optional<Constant>>;

// Left to the reference evaluator, which has a measure for what is too much.
bool is_large(const Constant& constant) { return element_count(constant.type.shape) > small; }

Constant reshaped(const Constant& constant, Shape shape) {
  return {{constant.type.dtype, std::move(shape)}, constant.content};
}

// Axes from the attribute (older opsets) or the second input.
Result<std::vector<int64_t>> axes_of(const OnnxNode& node, const std::vector<const Constant*>& inputs,
                                     const WeightStore& weights) {
  if (const auto axes = ints_attr(node, "axes")) return *axes;
  if (inputs.size() > 1 && inputs[1] != nullptr) return integers_of(*inputs[1], weights);
  return std::vector<int64_t>{};
}

Maybe fold_unsqueeze(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, axes_of(node, inputs, weights));
  Shape shape(inputs[0]->type.shape.size() + axes.size(), 0);
  for (const int64_t given : axes) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(given, shape.size()));
    shape[axis] = 1;
  }
  size_t next = 0;
  for (int64_t& extent : shape) {
    if (extent == 1) continue;
    if (next >= inputs[0]->type.shape.size()) return invalid_input("an axis twice");
    extent = inputs[0]->type.shape[next++];
  }
  return std::optional(reshaped(*inputs[0], shape));
}

Maybe fold_squeeze(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, axes_of(node, inputs, weights));
  const Shape& x = inputs[0]->type.shape;
  std::vector<bool> drop(x.size(), axes.empty());
  for (const int64_t given : axes) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(given, x.size()));
    drop[axis] = true;
  }
  Shape shape;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!drop[i] || (axes.empty() && x[i] != 1))
      shape.push_back(x[i]);
    else if (x[i] != 1)
      return invalid_input(fmt::format("squeezes an extent of {}", x[i]));
  }
  return std::optional(reshaped(*inputs[0], shape));
}

Maybe fold_reshape(const std::vector<const Constant*>& inputs, WeightStore& weights) {
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, integers_of(*inputs[1], weights));
  Attrs attrs;
  set_attr(attrs, "shape", std::move(shape));
  const std::vector<TensorType> types = {inputs[0]->type};
  ASSIGN_OR_RETURN(const std::vector<TensorType> out, info(Op::Reshape).infer(types, attrs));
  return std::optional(reshaped(*inputs[0], out[0].shape));
}

// Bytes rather than a recipe: a recipe's value is a double, which not every 64-bit integer is.
Maybe fold_integer_fill(TensorType type, const OnnxTensor& value, WeightStore& weights) {
  const int64_t count = element_count(type.shape);
  if (element_count(value.type.shape) != 1) return invalid_input("value must have one element");
  if (count > small) {
    const double number = is_real(type.dtype) ? reals_of(type.dtype, value.raw)[0]
                                              : static_cast<double>(wholes_of(type.dtype, value.raw)[0]);
    if (!(std::abs(number) < 0x1p53)) return unsupported(fmt::format("an integer constant of {} elements", count));
    const ContentId content = weights.add_fill(type, number);
    return std::optional(Constant{std::move(type), content});
  }
  std::string raw;
  for (int64_t i = 0; i < count; ++i) raw += value.raw;
  const ContentId content = weights.add_bytes(type, std::move(raw));
  return std::optional(Constant{std::move(type), content});
}

Maybe fold_fill(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  ASSIGN_OR_RETURN(Shape shape, integers_of(*inputs[0], weights));
  TensorType type{DType::f32, std::move(shape)};
  RETURN_IF_ERROR(check_type(type));
  RETURN_IF_ERROR(check_constant(type));
  double value = 0;
  if (const auto* given = attr<OnnxTensor>(node, "value")) {
    type.dtype = given->type.dtype;
    if (type.dtype != DType::f32) return fold_integer_fill(std::move(type), *given, weights);
    WeightStore scratch;
    ASSIGN_OR_RETURN(const std::vector<double> values,
                     numbers_of({given->type, scratch.add_bytes(given->type, given->raw)}, scratch));
    if (values.size() != 1) return invalid_input("value must have one element");
    value = values[0];
  }
  const ContentId content = weights.add_fill(type, value);
  return std::optional(Constant{std::move(type), content});
}

Maybe fold_constant_node(const OnnxNode& node, WeightStore& weights) {
  if (const auto* tensor = attr<OnnxTensor>(node, "value")) {
    const bool mapped = tensor->mapped.file != nullptr;
    return std::optional(Constant{tensor->type, mapped ? weights.add_mapped(tensor->type, tensor->mapped)
                                                       : weights.add_bytes(tensor->type, tensor->raw)});
  }
  if (const auto* value = attr<int64_t>(node, "value_int"))
    return std::optional(integer_constant({*value}, {}, DType::i64, weights));
  if (const auto* list = attr<std::vector<int64_t>>(node, "value_ints")) {
    return std::optional(integer_constant(*list, {static_cast<int64_t>(list->size())}, DType::i64, weights));
  }
  if (const auto* value = attr<float>(node, "value_float")) {
    const TensorType type{DType::f32, {}};
    return std::optional(Constant{type, weights.add_fill(type, *value)});
  }
  if (const auto* list = attr<std::vector<float>>(node, "value_floats")) {
    TensorType type{DType::f32, {static_cast<int64_t>(list->size())}};
    std::string raw(reinterpret_cast<const char*>(list->data()), list->size() * sizeof(float));
    const ContentId content = weights.add_bytes(type, std::move(raw));
    return std::optional(Constant{std::move(type), content});
  }
  return unsupported("a Constant of this kind");
}

// ---- arithmetic on small integers

Maybe fold_cast(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  const int64_t to = int_attr(node, "to", 0);
  const DType from = inputs[0]->type.dtype;
  const bool whole = from != DType::f32;
  if (from != DType::f32 && from != DType::i64 && from != DType::i32 && from != DType::boolean)
    return std::optional<Constant>();
  const DType target = to == 7 ? DType::i64 : to == 6 ? DType::i32 : to == 1 ? DType::f32 : DType::boolean;
  if (to != 7 && to != 6 && to != 1) return std::optional<Constant>();
  if (target == inputs[0]->type.dtype) return std::optional(*inputs[0]);
  if (element_count(inputs[0]->type.shape) > small) return std::optional<Constant>();
  if (target == DType::f32) {
    ASSIGN_OR_RETURN(const std::vector<double> values, numbers_of(*inputs[0], weights));
    std::string raw(values.size() * sizeof(float), '\0');
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      std::memcpy(&raw[i * sizeof(float)], &value, sizeof value);
    }
    const TensorType type{DType::f32, inputs[0]->type.shape};
    return std::optional(Constant{type, weights.add_bytes(type, std::move(raw))});
  }
  std::vector<int64_t> values;
  if (whole) {
    ASSIGN_OR_RETURN(values, integers_of(*inputs[0], weights));
  } else {
    ASSIGN_OR_RETURN(const std::vector<double> numbers, numbers_of(*inputs[0], weights));
    for (const double number : numbers) {
      if (!(std::abs(number) < 9e15)) return invalid_input("a cast of a number that is not an integer");
      values.push_back(static_cast<int64_t>(number));
    }
  }
  return std::optional(integer_constant(values, inputs[0]->type.shape, target, weights));
}

Maybe fold_gather(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  const bool whole = !is_real(inputs[0]->type.dtype);
  if (is_large(*inputs[0]) || is_large(*inputs[1])) return std::optional<Constant>();
  if (!whole || inputs[0]->type.shape.size() != 1 || int_attr(node, "axis", 0) != 0) return std::optional<Constant>();
  ASSIGN_OR_RETURN(const std::vector<int64_t> data, integers_of(*inputs[0], weights));
  ASSIGN_OR_RETURN(const std::vector<int64_t> indices, integers_of(*inputs[1], weights));
  std::vector<int64_t> out;
  for (const int64_t given : indices) {
    ASSIGN_OR_RETURN(const size_t index, axis_of(given, data.size()));
    out.push_back(data[index]);
  }
  return std::optional(integer_constant(out, inputs[1]->type.shape, inputs[0]->type.dtype, weights));
}

Maybe fold_slice(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  if (is_real(inputs[0]->type.dtype) || inputs[0]->type.shape.size() != 1) return std::optional<Constant>();
  if (is_large(*inputs[0])) return std::optional<Constant>();
  std::vector<int64_t> starts, ends, steps = {1};
  if (const auto given = ints_attr(node, "starts")) {
    starts = *given;
    ends = ints_attr(node, "ends").value_or(std::vector<int64_t>{});
  } else {
    if (inputs.size() < 3 || inputs[1] == nullptr || inputs[2] == nullptr)
      return invalid_input("starts or ends are missing");
    ASSIGN_OR_RETURN(starts, integers_of(*inputs[1], weights));
    ASSIGN_OR_RETURN(ends, integers_of(*inputs[2], weights));
    if (inputs.size() > 4 && inputs[4] != nullptr) {
      ASSIGN_OR_RETURN(steps, integers_of(*inputs[4], weights));
    }
  }
  if (starts.size() != 1 || ends.size() != 1 || steps.size() != 1 || steps[0] < 1) return std::optional<Constant>();
  ASSIGN_OR_RETURN(const std::vector<int64_t> data, integers_of(*inputs[0], weights));
  const auto count = static_cast<int64_t>(data.size());
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count); };
  std::vector<int64_t> out;
  const int64_t step = std::min(steps[0], count + 1);  // larger ones end the walk just as well, and cannot overflow
  for (int64_t i = clamp(starts[0]); i < clamp(ends[0]); i += step) out.push_back(data[static_cast<size_t>(i)]);
  const auto length = static_cast<int64_t>(out.size());
  return std::optional(integer_constant(out, {length}, inputs[0]->type.dtype, weights));
}

Maybe fold_concat(const std::vector<const Constant*>& inputs, WeightStore& weights) {
  std::vector<int64_t> out;
  int64_t total = 0;
  for (const Constant* input : inputs) {
    total += std::min(element_count(input->type.shape), small + 1);
    if (total > small) return std::optional<Constant>();
    if (is_real(input->type.dtype) || input->type.shape.size() != 1) return std::optional<Constant>();
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, integers_of(*input, weights));
    out.insert(out.end(), values.begin(), values.end());
  }
  const auto length = static_cast<int64_t>(out.size());
  return std::optional(integer_constant(out, {length}, inputs[0]->type.dtype, weights));
}

// The places of what is not zero: [axes, how many]. Only of constants: its extent depends on values.
Maybe fold_non_zero(const std::vector<const Constant*>& inputs, WeightStore& weights) {
  const Shape& shape = inputs[0]->type.shape;
  ASSIGN_OR_RETURN(const std::vector<double> values, numbers_of(*inputs[0], weights));
  const size_t axes = std::max<size_t>(shape.size(), 1);
  std::vector<std::vector<int64_t>> places(axes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = axes; axis-- > 0;) {
      const int64_t extent = shape.empty() ? 1 : shape[axis];
      places[axis].push_back(rest % extent);
      rest /= extent;
    }
  }
  std::vector<int64_t> all;
  for (const auto& list : places) all.insert(all.end(), list.begin(), list.end());
  const auto count = static_cast<int64_t>(places[0].size());
  return std::optional(integer_constant(all, {static_cast<int64_t>(axes), count}, DType::i64, weights));
}

Maybe fold_range(const std::vector<const Constant*>& inputs, WeightStore& weights) {
  std::vector<double> ends;
  const DType type = inputs[0]->type.dtype;
  for (size_t i = 0; i < 3; ++i) {
    if (inputs[i]->type.dtype != type || element_count(inputs[i]->type.shape) != 1)
      return invalid_input("start, limit and delta are not numbers of one type");
    ASSIGN_OR_RETURN(const std::vector<double> number, numbers_of(*inputs[i], weights));
    ends.push_back(number[0]);
  }
  const double count = std::ceil((ends[1] - ends[0]) / ends[2]);
  if (!(count <= static_cast<double>(small))) return unsupported("a range of that many elements");
  std::vector<double> values;
  for (double i = 0; i < count; ++i) values.push_back(ends[0] + i * ends[2]);
  std::vector<int64_t> whole;
  for (const double number : values) {
    if (is_real(type)) break;
    if (!(std::abs(number) < 0x1p63)) return invalid_input("a range beyond what integers can be");
    whole.push_back(static_cast<int64_t>(number));
  }
  const TensorType made{type, {static_cast<int64_t>(values.size())}};
  return std::optional(
      Constant{made, weights.add_bytes(made, is_real(type) ? raw_of(type, std::span<const double>(values))
                                                           : raw_of(type, std::span<const int64_t>(whole)))});
}

Maybe fold_arithmetic(const OnnxNode& node, const std::vector<const Constant*>& inputs, WeightStore& weights) {
  const Constant &a = *inputs[0], &b = *inputs[1];
  const int64_t na = element_count(a.type.shape), nb = element_count(b.type.shape);
  const std::vector<TensorType> sides = {{DType::f32, a.type.shape}, {DType::f32, b.type.shape}};
  ASSIGN_OR_RETURN(const std::vector<TensorType> sum, info(Op::Add).infer(sides, {}));
  const int64_t count = element_count(sum[0].shape);
  if ((na != count && na != 1) || (nb != count && nb != 1)) return std::optional<Constant>();  // rows against columns
  const TensorType type{a.type.dtype, sum[0].shape};
  if (a.type.dtype == DType::f32 && b.type.dtype == DType::f32) {
    if ((node.op != "Add" && node.op != "Mul") || count == 0) return std::optional<Constant>();
    constexpr int64_t most_reads = 16;  // of recipes of recipes; their number may double from node to node
    if (weights.reads(a.content) + weights.reads(b.content) > most_reads) return std::optional<Constant>();
    const ContentId content =
        weights.add_derived(node.op == "Add" ? Derivation::add : Derivation::mul, {a.content, b.content}, 0, type);
    return std::optional(Constant{type, content});
  }
  if (a.type.dtype != b.type.dtype || is_real(a.type.dtype) || count > small) return std::optional<Constant>();
  ASSIGN_OR_RETURN(const std::vector<int64_t> x, integers_of(a, weights));
  ASSIGN_OR_RETURN(const std::vector<int64_t> y, integers_of(b, weights));
  std::vector<int64_t> out;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const int64_t p = x[x.size() == 1 ? 0 : i], q = y[y.size() == 1 ? 0 : i];
    int64_t value = 0;
    bool overflow = false;
    if (node.op == "Add")
      overflow = __builtin_add_overflow(p, q, &value);
    else if (node.op == "Sub")
      overflow = __builtin_sub_overflow(p, q, &value);
    else if (node.op == "Mul")
      overflow = __builtin_mul_overflow(p, q, &value);
    else if (q == 0 || q == -1)
      return invalid_input("a division of shapes by zero or minus one");
    else
      value = p / q;
    if (overflow) return invalid_input("arithmetic on shapes overflows");
    out.push_back(value);
  }
  return std::optional(integer_constant(out, type.shape, type.dtype, weights));
}

}  // namespace

int64_t int_attr(const OnnxNode& node, const std::string& name, int64_t otherwise) {
  const auto* value = attr<int64_t>(node, name);
  return value == nullptr ? otherwise : *value;
}
double float_attr(const OnnxNode& node, const std::string& name, double otherwise) {
  const auto* value = attr<float>(node, name);
  return value == nullptr ? otherwise : static_cast<double>(*value);
}
std::string string_attr(const OnnxNode& node, const std::string& name, const std::string& otherwise) {
  const auto* value = attr<std::string>(node, name);
  return value == nullptr ? otherwise : *value;
}
std::optional<std::vector<int64_t>> ints_attr(const OnnxNode& node, const std::string& name) {
  const auto* value = attr<std::vector<int64_t>>(node, name);
  return value == nullptr ? std::nullopt : std::optional(*value);
}
std::optional<std::vector<std::string>> strings_attr(const OnnxNode& node, const std::string& name) {
  const auto* value = attr<std::vector<std::string>>(node, name);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

Status check_constant(const TensorType& type) {
  constexpr int64_t most = int64_t{1} << 31;
  const int64_t count = element_count(type.shape);
  if (count <= most) return ok_status();
  return unsupported(fmt::format("a constant of {} elements; at most {} are supported", count, most));
}

Result<std::vector<int64_t>> integers_of(const Constant& constant, const WeightStore& weights) {
  const int64_t count = element_count(constant.type.shape);
  if (is_real(constant.type.dtype)) return invalid_input("integers are needed, and these are floats");
  if (count > small) return unsupported(fmt::format("an integer constant of {} elements", count));
  ASSIGN_OR_RETURN(const std::string raw, weights.materialise(constant.content));
  return wholes_of(constant.type.dtype, raw);
}

Result<std::vector<double>> numbers_of(const Constant& constant, const WeightStore& weights) {
  if (!is_real(constant.type.dtype)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> whole, integers_of(constant, weights));
    return std::vector<double>(whole.begin(), whole.end());
  }
  const int64_t count = element_count(constant.type.shape);
  if (count > small) return unsupported(fmt::format("a constant of {} elements where a few are expected", count));
  ASSIGN_OR_RETURN(const std::string raw, weights.materialise(constant.content));
  return reals_of(constant.type.dtype, raw);
}

Constant integer_constant(const std::vector<int64_t>& values, Shape shape, DType dtype, WeightStore& weights) {
  std::string raw = raw_of(dtype, values);
  TensorType type{dtype, std::move(shape)};
  const ContentId content = weights.add_bytes(type, std::move(raw));
  return {std::move(type), content};
}

Result<std::optional<Constant>> fold_constant(const OnnxNode& node, int64_t, const std::vector<const Constant*>& inputs,
                                              WeightStore& weights) {
  if (node.op == "Constant") return fold_constant_node(node, weights);
  const auto has = [&](size_t count) {
    if (inputs.size() < count) return false;
    for (size_t i = 0; i < count; ++i) {
      if (inputs[i] == nullptr) return false;
    }
    return true;
  };
  if (!has(1)) return std::optional<Constant>();
  if (node.op == "ConstantOfShape") return fold_fill(node, inputs, weights);
  if (node.op == "Identity") return std::optional(*inputs[0]);
  if (node.op == "Unsqueeze") return fold_unsqueeze(node, inputs, weights);
  if (node.op == "Squeeze") return fold_squeeze(node, inputs, weights);
  if (node.op == "Cast") return fold_cast(node, inputs, weights);
  if (node.op == "Slice") return fold_slice(node, inputs, weights);
  if (node.op == "Concat") return has(inputs.size()) ? fold_concat(inputs, weights) : std::optional<Constant>();
  if (node.op == "Reshape" && has(2) && int_attr(node, "allowzero", 0) == 0) return fold_reshape(inputs, weights);
  if (node.op == "Gather" && has(2)) return fold_gather(node, inputs, weights);
  if (node.op == "NonZero") return fold_non_zero(inputs, weights);
  if (node.op == "Range" && has(3)) return fold_range(inputs, weights);
  const bool arithmetic = node.op == "Add" || node.op == "Sub" || node.op == "Mul" || node.op == "Div";
  if (arithmetic && has(2)) return fold_arithmetic(node, inputs, weights);
  return std::optional<Constant>();
}

}  // namespace nlsplit::inline graph
