// Elements taken, or written, by indices.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec axis_0[] = {integer("axis", 0)};
constexpr AttrSpec gather_nd_attrs[] = {integer("batch_dims", 0)};
constexpr AttrSpec scatter_attrs[] = {integer("axis", 0), text("reduction", "none")};
constexpr AttrSpec scatter_nd_attrs[] = {text("reduction", "none")};
constexpr AttrSpec one_hot_attrs[] = {integer("axis", -1), integer("depth")};
constexpr AttrSpec reverse_attrs[] = {integer("batch_axis", 1), integer("time_axis", 0)};

// ---- types

Status check_indices(const TensorType& type) {
  if (type.dtype == DType::i64 || type.dtype == DType::i32) return ok_status();
  return invalid_input(fmt::format("indices {}", to_string(type)));
}

// Whatever the indices are, they point at something: `count` of them along `axis`.
Status check_not_empty(const TensorType& x, size_t axis, int64_t count) {
  if (x.shape[axis] > 0 || count == 0) return ok_status();
  return invalid_input(fmt::format("indices into axis {} of {}", axis, to_string(x)));
}

Status check_reduction(const Attrs& attrs, DType type) {
  const std::string& reduction = attr_string(attrs, "reduction");
  for (const std::string_view known : {"none", "add", "mul", "max", "min"}) {
    if (reduction != known) continue;
    if (known != "none" && type == DType::boolean) return invalid_input(fmt::format("the reduction {} of bool", known));
    return ok_status();
  }
  return invalid_input(fmt::format("a reduction \"{}\"", reduction));
}

Inferred infer_gather(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  Shape out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.end());
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_gather_elements(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  if (x.size() != indices.size()) return invalid_input("the indices have another number of axes");
  for (size_t i = 0; i < x.size(); ++i) {
    if (i != axis && indices[i] > x[i])
      return invalid_input(fmt::format("indices {} of {}", to_string(inputs[1]), to_string(inputs[0])));
  }
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, indices);
}

Inferred infer_gather_nd(Types inputs, const Attrs& attrs) {
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  const int64_t given = attr_int(attrs, "batch_dims");
  if (indices.empty() || given < 0 || given >= static_cast<int64_t>(std::min(x.size(), indices.size())))
    return invalid_input(fmt::format("{} batch axes of indices {}", given, to_string(inputs[1])));
  const auto batch = static_cast<size_t>(given);
  if (!std::equal(x.begin(), x.begin() + given, indices.begin())) return invalid_input("the batch axes differ");
  if (indices.back() < 1 || batch + static_cast<size_t>(indices.back()) > x.size())
    return invalid_input(fmt::format("indices {} into {}", to_string(inputs[1]), to_string(inputs[0])));
  Shape out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), x.begin() + given + indices.back(), x.end());
  for (size_t k = 0; k < static_cast<size_t>(indices.back()); ++k)
    RETURN_IF_ERROR(check_not_empty(inputs[0], batch + k, element_count(out)));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_scatter_elements(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_indices(inputs[1]));
  RETURN_IF_ERROR(check_reduction(attrs, inputs[0].dtype));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  if (inputs[2] != TensorType{inputs[0].dtype, indices} || indices.size() != x.size())
    return invalid_input(fmt::format("updates {} at indices {}", to_string(inputs[2]), to_string(inputs[1])));
  for (size_t i = 0; i < x.size(); ++i) {
    if (i != axis && indices[i] > x[i])
      return invalid_input(fmt::format("indices {} of {}", to_string(inputs[1]), to_string(inputs[0])));
  }
  RETURN_IF_ERROR(check_not_empty(inputs[0], axis, element_count(indices)));
  return one_result(inputs[0].dtype, x);
}

Inferred infer_scatter_nd(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_indices(inputs[1]));
  RETURN_IF_ERROR(check_reduction(attrs, inputs[0].dtype));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  if (indices.empty() || indices.back() < 0 || indices.back() > static_cast<int64_t>(x.size()))
    return invalid_input(fmt::format("indices {} into {}", to_string(inputs[1]), to_string(inputs[0])));
  Shape updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), x.begin() + indices.back(), x.end());
  if (inputs[2] != TensorType{inputs[0].dtype, updates})
    return invalid_input(fmt::format("updates {} at indices {}", to_string(inputs[2]), to_string(inputs[1])));
  for (size_t k = 0; k < static_cast<size_t>(indices.back()); ++k)
    RETURN_IF_ERROR(check_not_empty(inputs[0], k, element_count(updates)));
  return one_result(inputs[0].dtype, x);
}

Inferred infer_one_hot(Types inputs, const Attrs& attrs) {
  if (inputs[0].dtype == DType::boolean || inputs[1].shape != Shape{2})
    return invalid_input(fmt::format("indices {} and values {}", to_string(inputs[0]), to_string(inputs[1])));
  Shape out = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), out.size() + 1));
  const int64_t depth = attr_int(attrs, "depth");
  if (depth < 1) return invalid_input(fmt::format("a depth of {}", depth));
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  return one_result(inputs[1].dtype, std::move(out));
}

Inferred infer_reverse_sequence(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  RETURN_IF_ERROR(check_indices(inputs[1]));
  ASSIGN_OR_RETURN(const size_t batch, axis_of(attr_int(attrs, "batch_axis"), x.size()));
  ASSIGN_OR_RETURN(const size_t time, axis_of(attr_int(attrs, "time_axis"), x.size()));
  if (batch == time) return invalid_input("one axis for samples and steps");
  if (inputs[1].shape != Shape{x[batch]}) return invalid_input(fmt::format("{} lengths", to_string(inputs[1])));
  return one_result(inputs[0].dtype, x);
}

// ---- work: a multiplication and an addition are two operations

// Each update meets an element.
Flops flops_scatter(Types in, Types, const Attrs& attrs) {
  return flops(attr_string(attrs, "reduction") == "none" ? 0 : count(in[2]));
}

// ---- the batch axis

// Of a table that is the same for all samples at each sample's indices, or at indices that are the same for all along
// another axis.
bool keeps_gather(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  if (!axis.ok()) return false;
  return batched == 1 ? *axis != 0 : batched == 2 && *axis == 0 && !in[1].shape.empty();
}

bool keeps_gather_nd(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 3 ? attr_int(attrs, "batch_dims") >= 1 : batched == 2 && in[1].shape.size() >= 2;
}

bool keeps_one_hot(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size() + 1);
  return batched == 1 && axis.ok() && *axis != 0;
}

// ---- pieces (pieces.h)

bool gather_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.inputs[0].shape.size());
  if (!axis.ok()) return false;
  const size_t indexed = q.inputs[1].shape.size();
  if (q.axis < *axis)
    piece.inputs[0] = same_axis(q);
  else if (q.axis < *axis + indexed)
    piece.inputs[1] = along(q.axis - *axis, q.begin, q.end);
  else
    piece.inputs[0] = along(q.axis + 1 - indexed, q.begin, q.end);
  return true;
}

// ---- gradients

void back_gather(Backward& b) {
  if (b.wants(1)) return b.fail(unsupported("Gather: its indices have no gradient"));
  const Shape& x = b.shape(b.x(0));
  const auto axis = axis_of(attr_int(b.attrs(), "axis"), x.size());
  if (!axis.ok()) return b.fail(axis.error());
  b.give(0, b.add(Op::GatherGradient, {b.dy(), b.x(1)}, {{"axis", static_cast<int64_t>(*axis)}, {"extent", x[*axis]}}));
}

}  // namespace

// clang-format off
//  operator         inputs     attributes        types                   work           batch            split         gradient     traits
ROW(Gather,          2,      2, axis_0,           infer_gather,           no_flops,      keeps_gather,    gather_piece, back_gather, takes_out | plain_in_onnx)
ROW(GatherElements,  2,      2, axis_0,           infer_gather_elements,  no_flops,      keeps_all,       beside_axis,  no_gradient, plain_in_onnx)
ROW(GatherND,        2,      2, gather_nd_attrs,  infer_gather_nd,        no_flops,      keeps_gather_nd, no_split,     no_gradient, plain_in_onnx)
ROW(ScatterElements, 3,      3, scatter_attrs,    infer_scatter_elements, flops_scatter, keeps_all,       no_split,     no_gradient, plain_in_onnx)
ROW(ScatterND,       3,      3, scatter_nd_attrs, infer_scatter_nd,       flops_scatter, keeps_none,      no_split,     no_gradient, plain_in_onnx)
ROW(OneHot,          2,      2, one_hot_attrs,    infer_one_hot,          no_flops,      keeps_one_hot,   no_split,     no_gradient, stays_f32)
ROW(ReverseSequence, 2,      2, reverse_attrs,    infer_reverse_sequence, no_flops,      keeps_none,      no_split,     no_gradient, plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
