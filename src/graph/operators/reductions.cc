// Reductions and what else runs along axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec reduce_attrs[] = {integers("axes"), integer("keepdims", 1)};
constexpr AttrSpec reduce_sum_attrs[] = {as_input(integers("axes"), 1), integer("keepdims", 1)};
constexpr AttrSpec arg_attrs[] = {integer("axis", 0), integer("keepdims", 1), integer("select_last_index", 0)};
constexpr AttrSpec cumsum_attrs[] = {as_input(integer("axis"), 1), integer("exclusive", 0), integer("reverse", 0)};
constexpr AttrSpec top_k_attrs[] = {integer("axis", -1), as_input(integer("k"), 1, true), integer("largest", 1),
                                    integer("sorted", 1)};

// ---- types

Inferred infer_reduce_any(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  std::vector<bool> reduced(x.size(), false);
  for (const int64_t given : attr_ints(attrs, "axes")) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(given, x.size()));
    reduced[axis] = true;
  }
  Shape out;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i])
      out.push_back(x[i]);
    else if (attr_int(attrs, "keepdims") != 0)
      out.push_back(1);
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_reduce(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(numbers(inputs));
  return infer_reduce_any(inputs, attrs);
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

// ---- work: a multiplication and an addition are two operations

// Two for an element: the function of it, then the sum.
Flops flops_reduce_function(Types in, Types, const Attrs&) { return flops(2 * count(in[0])); }

// Each element meets a heap of the best k.
Flops flops_top_k(Types in, Types, const Attrs& attrs) {
  return flops(count(in[0]) * (1 + std::log2(static_cast<double>(std::max<int64_t>(attr_int(attrs, "k"), 1)))));
}

// ---- the batch axis

bool keeps_reduce(Types in, uint64_t batched, const Attrs& attrs) {
  if (batched != 1) return false;
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const auto axis = axis_of(given, in[0].shape.size());
    if (!axis.ok() || *axis == 0) return false;
  }
  return true;
}

// ---- pieces (pieces.h)

// Shape that are reduced are gone, or have extent 1.
bool reduced_piece(const PieceQuery& q, const std::vector<int64_t>& given, NodePiece& piece) {
  const size_t rank = q.inputs[0].shape.size();
  std::vector<bool> reduced(rank, false);
  for (const int64_t one : given) {
    const auto axis = axis_of(one, rank);
    if (!axis.ok()) return false;
    reduced[*axis] = true;
  }
  const bool kept = attr_int(q.node.attrs, "keepdims") != 0;
  size_t out = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (reduced[axis] && !kept) continue;
    if (out++ != q.axis) continue;
    piece.inputs[0] = along(axis, q.begin, q.end);
    return !reduced[axis];
  }
  return false;
}

bool reduced_axes_piece(const PieceQuery& q, NodePiece& piece) {
  return reduced_piece(q, attr_ints(q.node.attrs, "axes"), piece);
}
bool reduced_axis_piece(const PieceQuery& q, NodePiece& piece) {
  return reduced_piece(q, {attr_int(q.node.attrs, "axis")}, piece);
}

// ---- gradients

ValueId kept_as_x(Backward& b, ValueId reduced) { return with_axes_kept(b, reduced, attr_ints(b.attrs(), "axes")); }

void back_reduce_sum(Backward& b) { spread(b, b.dy(), attr_ints(b.attrs(), "axes")); }
void back_reduce_mean(Backward& b) { spread(b, b.scaled(b.dy(), share(b)), attr_ints(b.attrs(), "axes")); }
// dx = dy sign x
void back_reduce_l1(Backward& b) { b.give(0, b.add(Op::Mul, {b.add(Op::Sign, {b.x(0)}), kept_as_x(b, b.dy())})); }
// y² = Σ x²: dx = dy x / y
void back_reduce_l2(Backward& b) {
  b.give(0, b.add(Op::Mul, {b.x(0), kept_as_x(b, quotient_or_zero(b, b.dy(), b.y()))}));
}
// dx = 2 dy x
void back_reduce_sum_square(Backward& b) { b.give(0, b.add(Op::Mul, {b.x(0), kept_as_x(b, b.scaled(b.dy(), 2))})); }
// y = log Σ x: dx = dy e^-y
void back_reduce_log_sum(Backward& b) {
  const ValueId inverse = b.add(Op::Exp, {b.add(Op::Neg, {b.y()})});
  spread(b, b.add(Op::Mul, {b.dy(), inverse}), attr_ints(b.attrs(), "axes"));
}
// y = log Σ e^x: dx = dy e^(x - y)
void back_reduce_log_sum_exp(Backward& b) {
  const ValueId shares = b.add(Op::Exp, {b.add(Op::Sub, {b.x(0), kept_as_x(b, b.y())})});
  b.give(0, b.add(Op::Mul, {kept_as_x(b, b.dy()), shares}));
}
// Elements that are equally large share, as in PyTorch's amax.
void back_reduce_extreme(Backward& b) {
  const ValueId taken = where_equal(b, b.x(0), kept_as_x(b, b.y()));
  const Shape& axes = attr_ints(b.attrs(), "axes");
  const ValueId count = b.add(Op::ReduceSum, {taken}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  b.give(0, b.add(Op::Mul, {taken, b.add(Op::Div, {kept_as_x(b, b.dy()), count})}));
}
void back_reduce_prod(Backward& b) { b.give(0, b.add(Op::ReduceProdGradient, {b.dy(), b.x(0)}, b.attrs())); }
// An element is in the sums from its own place on; back from there.
void back_cumsum(Backward& b) {
  Attrs attrs = b.attrs();
  set_attr(attrs, "reverse", int64_t{attr_int(attrs, "reverse") == 0});
  b.give(0, b.add(Op::CumSum, {b.dy()}, std::move(attrs)));
}
// The values go back to where they were taken from.
void back_top_k(Backward& b) {
  const Attrs attrs{{"axis", attr_int(b.attrs(), "axis")}, {"reduction", std::string("none")}};
  b.give(0, b.add(Op::ScatterElements, {b.constant(b.shape(b.x(0)), 0), b.y(1), b.dy()}, attrs));
}

}  // namespace

// clang-format off
//  operator         inputs  attributes    types             work                   batch         split               gradient                 traits
ROW(ReduceMean,      1, 1,   reduce_attrs, infer_reduce,     flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_mean,        has_kernels)
ROW(ReduceL1,        1, 1,   reduce_attrs, infer_reduce,     flops_reduce_function, keeps_reduce, reduced_axes_piece, back_reduce_l1,          none)
ROW(ReduceL2,        1, 1,   reduce_attrs, infer_reduce,     flops_reduce_function, keeps_reduce, reduced_axes_piece, back_reduce_l2,          none)
ROW(ReduceLogSum,    1, 1,   reduce_attrs, infer_reduce,     flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_log_sum,     none)
ROW(ReduceLogSumExp, 1, 1,   reduce_attrs, infer_reduce,     flops_reduce_function, keeps_reduce, reduced_axes_piece, back_reduce_log_sum_exp, none)
ROW(ReduceMax,       1, 1,   reduce_attrs, infer_reduce_any, flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_extreme,     none)
ROW(ReduceMin,       1, 1,   reduce_attrs, infer_reduce_any, flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_extreme,     none)
ROW(ReduceProd,      1, 1,   reduce_attrs, infer_reduce,     flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_prod,        none)
ROW(ReduceSum,       1, 1,   reduce_sum_attrs, infer_reduce,     flops_reduce,          keeps_reduce, reduced_axes_piece, back_reduce_sum,         has_kernels)
ROW(ReduceSumSquare, 1, 1,   reduce_attrs, infer_reduce,     flops_reduce_function, keeps_reduce, reduced_axes_piece, back_reduce_sum_square,  none)
ROW(ArgMax,          1, 1,   arg_attrs,    infer_arg_reduce, flops_reduce,          keeps_axis,   reduced_axis_piece, flat,                    plain_in_onnx)
ROW(ArgMin,          1, 1,   arg_attrs,    infer_arg_reduce, flops_reduce,          keeps_axis,   reduced_axis_piece, flat,                    plain_in_onnx)
ROW(CumSum,          1, 1,   cumsum_attrs, infer_cumsum,     flops_each,            keeps_axis,   beside_axis,        back_cumsum,             stays_f32 | plain_in_onnx)
ROW(TopK,            1, 1,   top_k_attrs,  infer_top_k,      flops_top_k,           keeps_axis,   no_split,           back_top_k,              plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
