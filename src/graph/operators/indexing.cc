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
constexpr AttrSpec one_hot_attrs[] = {integer("axis", -1), as_input(integer("depth"), 1)};
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
  const Shape& x = b.shape(b.x(0));
  const auto axis = axis_of(attr_int(b.attrs(), "axis"), x.size());
  if (!axis.ok()) return b.fail(axis.error());
  b.give(0, b.add(Op::GatherGradient, {b.dy(), b.x(1)}, {{"axis", static_cast<int64_t>(*axis)}, {"extent", x[*axis]}}));
}

// What was taken several times adds up.
void back_gather_elements(Backward& b) {
  const Attrs attrs{{"axis", attr_int(b.attrs(), "axis")}, {"reduction", std::string("add")}};
  b.give(0, b.add(Op::ScatterElements, {b.constant(b.shape(b.x(0)), 0), b.x(1), b.dy()}, attrs));
}

// ScatterND has no batch axes: the sample's place in front of each index.
ValueId with_batch_places(Backward& b, ValueId indices, int64_t batch) {
  const TensorType type = b.type(indices);
  Shape outer(type.shape.begin(), type.shape.end() - 1), places = outer;
  places.push_back(batch);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < element_count(outer); ++i) {
    int64_t inner = element_count(outer);
    for (int64_t axis = 0; axis < batch; ++axis) {
      const int64_t extent = outer[static_cast<size_t>(axis)];
      inner /= extent;
      values.push_back(i / inner % extent);
    }
  }
  return b.add(Op::Concat, {b.integers({type.dtype, std::move(places)}, values), indices}, {{"axis", int64_t{-1}}});
}
void back_gather_nd(Backward& b) {
  const int64_t batch = attr_int(b.attrs(), "batch_dims");
  const ValueId indices = batch == 0 ? b.x(1) : with_batch_places(b, b.x(1), batch);
  b.give(0,
         b.add(Op::ScatterND, {b.constant(b.shape(b.x(0)), 0), indices, b.dy()}, {{"reduction", std::string("add")}}));
}

// y = x with updates u at the indices, added, multiplied or compared. A product's share is by division: none where an
// update is 0. Of equally large ones each has its share. Indices that are equal where nothing is reduced leave open
// which update stays (ONNX); each of them gets the gradient, as in PyTorch.
void back_scatter(Backward& b, Op gather, const Attrs& places) {
  const std::string& reduction = attr_string(b.attrs(), "reduction");
  const auto taken = [&](ValueId from) { return b.add(gather, {from, b.x(1)}, places); };
  const auto put = [&](ValueId into, ValueId updates, std::string how) {
    Attrs attrs = b.attrs();
    set_attr(attrs, "reduction", std::move(how));
    return b.add(b.op(), {into, b.x(1), updates}, std::move(attrs));
  };
  ValueId dx = b.dy(), du;
  if (reduction == "none") {
    if (b.wants(0)) dx = put(b.dy(), b.constant(b.shape(b.x(2)), 0), "none");
    if (b.wants(2)) du = taken(b.dy());
  } else if (reduction == "add") {
    if (b.wants(2)) du = taken(b.dy());
  } else if (reduction == "mul") {
    if (b.wants(0)) dx = put(b.dy(), b.x(2), "mul");
    if (b.wants(2)) du = b.add(Op::Div, {taken(b.add(Op::Mul, {b.dy(), b.y()})), b.x(2)});
  } else {
    const ValueId stayed = where_equal(b, b.x(0), b.y()), won = where_equal(b, b.x(2), taken(b.y()));
    const ValueId part = b.add(Op::Div, {b.dy(), put(stayed, won, "add")});
    if (b.wants(0)) dx = b.add(Op::Mul, {stayed, part});
    if (b.wants(2)) du = b.add(Op::Mul, {won, taken(part)});
  }
  if (b.wants(0)) b.give(0, dx);
  if (b.wants(2)) b.give(2, du);
}
void back_scatter_elements(Backward& b) {
  back_scatter(b, Op::GatherElements, {{"axis", attr_int(b.attrs(), "axis")}});
}
void back_scatter_nd(Backward& b) { back_scatter(b, Op::GatherND, {{"batch_dims", int64_t{0}}}); }

// By the values (off, on): sums of what has either. Indices, if they are floats, are cut off to whole numbers.
void back_one_hot(Backward& b) {
  if (b.wants(0)) b.give(0, b.constant(b.shape(b.x(0)), 0));
  if (!b.wants(1)) return;
  const auto sum_where = [&](double off, double on) {
    const ValueId pair = b.constant({b.type(b.dy()).dtype, {2}}, {off, on});
    const ValueId chosen = b.add(Op::Mul, {b.dy(), b.add(Op::OneHot, {b.x(0), pair}, b.attrs())});
    return b.reshaped(b.sum_to(chosen, {}), {1});
  };
  b.give(1, b.add(Op::Concat, {sum_where(1, 0), sum_where(0, 1)}, {{"axis", int64_t{0}}}));
}
// Its own inverse.
void back_reverse_sequence(Backward& b) { b.give(0, b.add(Op::ReverseSequence, {b.dy(), b.x(1)}, b.attrs())); }

}  // namespace

// clang-format off
//  operator         inputs  attributes        types                   work           batch            split         gradient               traits
ROW(Gather,          2, 2,   axis_0,           infer_gather,           no_flops,      keeps_gather,    gather_piece, back_gather,           takes_out | plain_in_onnx | reads_scaled)
ROW(GatherElements,  2, 2,   axis_0,           infer_gather_elements,  no_flops,      keeps_all,       beside_axis,  back_gather_elements,  plain_in_onnx)
ROW(GatherND,        2, 2,   gather_nd_attrs,  infer_gather_nd,        no_flops,      keeps_gather_nd, no_split,     back_gather_nd,        plain_in_onnx)
ROW(ScatterElements, 3, 3,   scatter_attrs,    infer_scatter_elements, flops_scatter, keeps_all,       no_split,     back_scatter_elements, plain_in_onnx)
ROW(ScatterND,       3, 3,   scatter_nd_attrs, infer_scatter_nd,       flops_scatter, keeps_none,      no_split,     back_scatter_nd,       plain_in_onnx)
ROW(OneHot,          2, 2,   one_hot_attrs,    infer_one_hot,          no_flops,      keeps_one_hot,   no_split,     back_one_hot,          stays_f32 | plain_in_onnx)
ROW(ReverseSequence, 2, 2,   reverse_attrs,    infer_reverse_sequence, no_flops,      keeps_none,      no_split,     back_reverse_sequence, plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
