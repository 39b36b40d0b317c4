// What rows of more than one family are made of. For the files of families beside this one; a row:
//
//   ROW(Neg, 1, 1, no_attrs, infer_same, flops_each, keeps_first, first_alike, back_neg, maps_elements | has_kernels)
#pragma once

#include "graph/differentiate/backward.h"
#include "graph/operators/operator.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {

namespace rows {
#define NLS_OPERATOR(name) extern const Operator name;
#include "graph/operators/operators.def"
#undef NLS_OPERATOR
}  // namespace rows

using Inferred = Result<std::vector<TensorType>>;

// The number of inputs and the attributes first, then the rule.
template <const Operator& row, Inferred (*rule)(Types, const Attrs&)>
Inferred checked(Types inputs, const Attrs& attrs);
Status check_form(const Operator& row, Types inputs, const Attrs& attrs);

#define ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits) \
  FULL_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, nullptr, nullptr)
// A product by weights: with its rule.
#define PRODUCT_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, product) \
  FULL_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, product, nullptr)
// With what it reads as scalars: a pointer.
#define ROW_OF_SCALARS(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, of_scalars) \
  FULL_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, nullptr, of_scalars)
// With its own work.
#define ROW_OF_CHOICE(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, of_work) \
  WHOLE_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, nullptr, nullptr, of_work)
#define FULL_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, product, of_scalars) \
  WHOLE_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, product, of_scalars, nullptr)
#define WHOLE_ROW(op, least, most, attrs, infer, flops, batch, split, gradient, of_traits, product, of_scalars, \
                  of_work)                                                                                      \
  constinit const Operator rows::op = {Op::op,                                                                  \
                                       #op,                                                                     \
                                       least,                                                                   \
                                       most,                                                                    \
                                       attrs,                                                                   \
                                       checked<rows::op, infer>,                                                \
                                       flops,                                                                   \
                                       batch,                                                                   \
                                       split,                                                                   \
                                       gradient,                                                                \
                                       [] {                                                                     \
                                         using namespace traits;                                                \
                                         return of_traits;                                                      \
                                       }(),                                                                     \
                                       product,                                                                 \
                                       of_scalars,                                                              \
                                       of_work};

inline constexpr std::span<const AttrSpec> no_attrs;
inline constexpr AttrSpec shape_attrs[] = {as_input(integers("shape"), 1)};
inline constexpr AttrSpec axis_1[] = {integer("axis", 1)};

// ---- types

Inferred one_result(DType dtype, Shape shape);  // error: extents below 0 or above largest_extent, too many axes
// All of one type that `accepts` takes; `known` is for the message ("f32 and f16").
Status same_type(Types inputs, bool (*accepts)(DType), std::string_view known);
Status floats(Types inputs);  // f32 and halves
Status reals(Types inputs);   // and f64
Status numbers(Types inputs);
Status any_type(Types inputs);
Status check_scalars(const TensorType& type, const Shape& shape);  // integers that say where and how many
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);
Inferred broadcast_to(Types inputs, DType result);
Inferred infer_broadcast(Types inputs, const Attrs& attrs);
Inferred infer_same(Types inputs, const Attrs& attrs);      // all inputs alike, and so the output
Inferred infer_function(Types inputs, const Attrs& attrs);  // of floats, element by element
Inferred infer_axis(Types inputs, const Attrs& attrs);  // as the input; the attribute `axis` must be one of its axes
// What the operator makes of the operands must have the type of its gradient dy.
Status check_forward(Op op, Types operands, const Attrs& attrs, const TensorType& dy);
Inferred infer_bits(Types inputs, const Attrs& attrs);  // of integers; one operand, or two that broadcast

// ---- work: a multiplication and an addition are two operations, a call of a function is one

inline Flops no_flops(Types, Types, const Attrs&) { return flops(0); }
inline Flops flops_each(Types, Types out, const Attrs&) { return flops(count(out[0])); }
inline Flops flops_reduce(Types in, Types, const Attrs&) { return flops(count(in[0])); }
inline Flops flops_sum(Types in, Types out, const Attrs&) {
  return flops(static_cast<double>(in.size() - 1) * count(out[0]));
}

// ---- the batch axis (Operator::keeps_batch)

inline bool batch_of_first(uint64_t batched) { return (batched & 1) != 0; }
inline uint64_t all_of(Types in) { return in.size() >= 64 ? ~uint64_t{0} : (uint64_t{1} << in.size()) - 1; }
bool along_another_axis(const TensorType& type, const Attrs& attrs);

// Input 0 has samples, the others are parameters.
inline bool keeps_first(Types, uint64_t batched, const Attrs&) { return batched == 1; }
inline bool keeps_none(Types, uint64_t, const Attrs&) { return false; }  // it mixes samples, or no rule was written
// Every input has samples.
inline bool keeps_pairs(Types in, uint64_t batched, const Attrs&) { return batched == all_of(in); }
bool keeps_broadcast(Types inputs, uint64_t batched, const Attrs& attrs);
bool keeps_axis(Types inputs, uint64_t batched, const Attrs& attrs);  // works along one axis, which must not be 0
bool keeps_all(Types inputs, uint64_t batched, const Attrs& attrs);   // every input has samples; axis as above

// ---- pieces (SplitRule)

inline Region along(size_t axis, int64_t begin, int64_t end) { return {static_cast<int>(axis), begin, end}; }
inline Region same_axis(const PieceQuery& q) { return along(q.axis, q.begin, q.end); }
// Axes are counted from the last; an operand of extent 1, or without the axis, is every part's.
Region broadcast_part(const PieceQuery& q, const TensorType& type);
inline bool first_alike(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = same_axis(q);
  return true;
}
bool broadcast_piece(const PieceQuery& q, NodePiece& piece);
bool beside_axis(const PieceQuery& q, NodePiece& piece);

// ---- gradients: the nodes that make them. y = f(x, …), and the chain rule gives dx = (∂y/∂x)ᵀ dy (Baydin,
// Pearlmutter, Radul, Siskind, "Automatic differentiation in machine learning: a survey", JMLR 18, 2018, section 3.2).
// Each formula stands at its function.

inline constexpr NoGradient flat = NoGradient::flat, of_a_step = NoGradient::of_a_step,
                            of_a_cache = NoGradient::of_a_cache, of_a_choice = NoGradient::of_a_choice;
template <Op gradient>
void by_result(Backward& b) {
  b.give(0, b.add(gradient, {b.dy(), b.y()}, b.attrs()));
}
template <Op gradient>
void by_operand(Backward& b) {
  b.give(0, b.add(gradient, {b.dy(), b.x(0)}, b.attrs()));
}
// What a reduction of x along the axes has made, with an extent of 1 along each.
ValueId with_axes_kept(Backward& b, ValueId reduced, const Shape& axes);
// dx = dy, at all places along the axes that the sum has taken together.
void spread(Backward& b, ValueId dy, const Shape& axes);
// a / b, and 0 where b is 0: of a norm at its kink.
ValueId quotient_or_zero(Backward& b, ValueId numerator, ValueId divisor);
// 1 where the two are equal, else 0.
ValueId where_equal(Backward& b, ValueId one, ValueId other);
double share(const Backward& b);             // results for each operand's element
Shape all_but_channels(const Shape& shape);  // axes

template <const Operator& row, Inferred (*rule)(Types, const Attrs&)>
Inferred checked(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_form(row, inputs, attrs));
  return rule(inputs, attrs);
}

}  // namespace nlsplit::inline graph
