// Types of element-wise operators, of reductions and of sums of products that only the reference evaluator computes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

Result<Shape> broadcast_all(Types inputs) {
  Shape out;
  for (const TensorType& type : inputs) {
    ASSIGN_OR_RETURN(out, broadcast_shapes(out, type.shape));
  }
  return out;
}

Inferred broadcast_to(Types inputs, DType result) {
  ASSIGN_OR_RETURN(Shape out, broadcast_all(inputs));
  return one_result(result, std::move(out));
}

Status check_direction(const Attrs& attrs) {
  if (find_attr(attrs, "direction") == nullptr) return ok_status();
  const std::string& direction = attr_string(attrs, "direction");
  if (direction == "LEFT" || direction == "RIGHT") return ok_status();
  return invalid_input(fmt::format("a direction \"{}\"", direction));
}

}  // namespace

Inferred infer_not(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type == DType::boolean; }, "bool"));
  return one_result(DType::boolean, inputs[0].shape);
}

Inferred infer_bits(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(inputs, is_whole, "integers"));
  RETURN_IF_ERROR(check_direction(attrs));
  return broadcast_to(inputs, inputs[0].dtype);
}

Inferred infer_test(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(inputs, is_real, "floats"));
  return one_result(DType::boolean, inputs[0].shape);
}

Inferred infer_cast(Types inputs, const Attrs& attrs) {
  ASSIGN_OR_RETURN(const DType to, parse_dtype(attr_string(attrs, "to")));
  return one_result(to, inputs[0].shape);
}

Inferred infer_pow(Types inputs, const Attrs&) {
  for (const TensorType& type : inputs) {
    if (type.dtype == DType::boolean) return unsupported("operands of type bool; only numbers are supported");
  }
  return broadcast_to(inputs, inputs[0].dtype);
}

Inferred infer_prelu(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  ASSIGN_OR_RETURN(const Shape out, broadcast_shapes(inputs[0].shape, inputs[1].shape));
  if (out != inputs[0].shape)
    return invalid_input(fmt::format("a slope {} for {}", to_string(inputs[1]), to_string(inputs[0])));
  return one_result(inputs[0].dtype, out);
}

Inferred infer_logic(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type == DType::boolean; }, "bool"));
  return broadcast_to(inputs, DType::boolean);
}

Inferred infer_compare(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType) { return true; }, ""));
  return broadcast_to(inputs, DType::boolean);
}

Inferred infer_where(Types inputs, const Attrs&) {
  if (inputs[0].dtype != DType::boolean) return invalid_input(fmt::format("a condition {}", to_string(inputs[0])));
  RETURN_IF_ERROR(same_type(
      inputs.subspan(1), [](DType) { return true; }, ""));
  return broadcast_to(inputs, inputs[1].dtype);
}

Inferred infer_variadic(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  return broadcast_to(inputs, inputs[0].dtype);
}

Inferred infer_arg_reduce(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  Shape out = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), out.size()));
  if (out[axis] < 1) return invalid_input("the largest or smallest of no elements");
  if (attr_int(attrs, "keepdims") != 0)
    out[axis] = 1;
  else
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(axis));
  return one_result(DType::i64, std::move(out));
}

Inferred infer_cumsum(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  if (const auto axis = axis_of(attr_int(attrs, "axis"), inputs[0].shape.size()); !axis) return axis.error();
  return one_result(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_top_k(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  Shape out = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), out.size()));
  const int64_t k = attr_int(attrs, "k");
  if (k < 0 || k > out[axis]) return invalid_input(fmt::format("the best {} of {} elements", k, out[axis]));
  out[axis] = k;
  ASSIGN_OR_RETURN(std::vector<TensorType> types, one_result(inputs[0].dtype, out));
  types.push_back({DType::i64, std::move(out)});
  return types;
}

namespace {

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

}  // namespace

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

namespace {

// "bij" or "b...j": labels from left to right, the ellipsis as ellipsis_axes labels below 0.
Result<std::vector<int>> labels_of(std::string_view term, size_t ellipsis_axes) {
  std::vector<int> labels;
  bool seen = false;
  while (!term.empty()) {
    if (term.starts_with("...")) {
      if (seen) return invalid_input("two ellipses in a term of the equation");
      seen = true;
      for (size_t i = ellipsis_axes; i-- > 0;) labels.push_back(-1 - static_cast<int>(i));
      term.remove_prefix(3);
      continue;
    }
    if (std::isalpha(static_cast<unsigned char>(term[0])) == 0)
      return invalid_input(fmt::format("the equation has a '{}'", term[0]));
    labels.push_back(term[0]);
    term.remove_prefix(1);
  }
  return labels;
}

}  // namespace

Result<EinsumTerms> einsum_terms(Types inputs, const std::string& equation) {
  std::string text;
  for (const char c : equation) {
    if (c != ' ') text += c;
  }
  const size_t arrow = text.find("->");
  std::string_view left = std::string_view(text).substr(0, std::min(arrow, text.size()));
  EinsumTerms terms;
  size_t widest = 0;  // ellipsis
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t comma = std::min(left.find(','), left.size());
    if ((i + 1 == inputs.size()) != (comma == left.size()))
      return invalid_input(fmt::format("the equation is not for {} operands", inputs.size()));
    const std::string_view term = left.substr(0, comma);
    ASSIGN_OR_RETURN(const std::vector<int> letters, labels_of(term, 0));
    const size_t rank = inputs[i].shape.size();
    const bool open = term.find("...") != term.npos;
    if (letters.size() > rank || (!open && letters.size() != rank))
      return invalid_input(fmt::format("operand {} is {}, its term \"{}\"", i + 1, to_string(inputs[i]), term));
    if (open) widest = std::max(widest, rank - letters.size());
    ASSIGN_OR_RETURN(terms.inputs.emplace_back(), labels_of(term, rank - letters.size()));
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  if (arrow != text.npos) {
    ASSIGN_OR_RETURN(terms.output, labels_of(std::string_view(text).substr(arrow + 2), widest));
  } else {  // the ellipsis, then the letters that stand once, in alphabetical order
    std::map<int, int> uses;
    for (const auto& labels : terms.inputs) {
      for (const int label : labels) ++uses[label];
    }
    for (size_t i = widest; i-- > 0;) terms.output.push_back(-1 - static_cast<int>(i));
    for (const auto& [label, count] : uses) {
      if (label > 0 && count == 1) terms.output.push_back(label);
    }
  }
  return terms;
}

Inferred infer_einsum(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  ASSIGN_OR_RETURN(const EinsumTerms terms, einsum_terms(inputs, attr_string(attrs, "equation")));
  std::map<int, int64_t> extents;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
      const int64_t here = inputs[i].shape[axis];
      const auto [known, added] = extents.emplace(terms.inputs[i][axis], here);
      if (known->second == 1) known->second = here;
      if (here != 1 && here != known->second)
        return invalid_input(fmt::format("extents {} and {} for one label", known->second, here));
    }
  }
  Shape out;
  for (size_t i = 0; i < terms.output.size(); ++i) {
    const auto known = extents.find(terms.output[i]);
    if (known == extents.end()) return invalid_input("the result has a label that no operand has");
    if (std::count(terms.output.begin(), terms.output.end(), terms.output[i]) > 1)
      return invalid_input("the result has a label twice");
    out.push_back(known->second);
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_det(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(inputs, is_real, "floats"));
  const Shape& x = inputs[0].shape;
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2])
    return invalid_input(fmt::format("{} is no square matrix", to_string(inputs[0])));
  return one_result(inputs[0].dtype, Shape(x.begin(), x.end() - 2));
}

}  // namespace nlsplit
