// Gradients that are no other operator, and losses. Which nodes make the gradients of an operator stands in its own
// row.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

// All of them written: whoever makes the gradient copies the operator's.
constexpr AttrSpec leaky_relu_gradient_attrs[] = {real("alpha")};
constexpr AttrSpec hard_sigmoid_gradient_attrs[] = {real("alpha")};
constexpr AttrSpec clip_gradient_attrs[] = {real("max"), real("min")};
constexpr AttrSpec gelu_gradient_attrs[] = {text("approximate")};
constexpr AttrSpec conv_gradient_attrs[] = {integers("dilations"), integer("group"), integers("kernel_shape"),
                                            integers("pads"), integers("strides")};
constexpr AttrSpec max_pool_gradient_attrs[] = {integer("ceil_mode"), integers("dilations"), integers("kernel_shape"),
                                                integers("pads"), integers("strides")};
constexpr AttrSpec average_pool_gradient_attrs[] = {integer("ceil_mode"), integer("count_include_pad"),
                                                    integers("extents"),  integers("kernel_shape"),
                                                    integers("pads"),     integers("strides")};
constexpr AttrSpec epsilon_attrs[] = {real("epsilon")};
constexpr AttrSpec layer_norm_gradient_attrs[] = {integer("axis"), real("epsilon")};
constexpr AttrSpec lrn_gradient_attrs[] = {real("alpha"), real("beta"), real("bias"), integer("size")};
constexpr AttrSpec softmax_gradient_attrs[] = {integer("axis")};
constexpr AttrSpec reduce_gradient_attrs[] = {integers("axes"), integer("keepdims")};
constexpr AttrSpec gather_gradient_attrs[] = {integer("axis"), integer("extent")};

Inferred as_second(Types inputs) { return one_result(inputs[1].dtype, inputs[1].shape); }
Status same_floats(const TensorType& a, const TensorType& b) {
  const TensorType both[] = {a, b};
  return reals(both);
}

// ---- types

Inferred infer_axis_gradient(Types inputs, const Attrs& attrs) {
  if (const Inferred forward = infer_axis(inputs.first(1), attrs); !forward.ok()) return forward.error();
  return infer_same(inputs, attrs);
}

Inferred infer_conv_weight_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  const Shape &x = inputs[0].shape, &dy = inputs[1].shape, &kernel = attr_ints(attrs, "kernel_shape");
  const int64_t group = attr_int(attrs, "group");
  if (x.size() < 3 || x.size() != dy.size() || kernel.size() + 2 != x.size() || group < 1 || x[1] % group != 0)
    return invalid_input(fmt::format("an input {} and a gradient {}", to_string(inputs[0]), to_string(inputs[1])));
  Shape weights{dy[1], x[1] / group};
  weights.insert(weights.end(), kernel.begin(), kernel.end());
  const std::vector<TensorType> operands{inputs[0], {inputs[0].dtype, weights}};
  RETURN_IF_ERROR(check_forward(Op::Conv, operands, attrs, inputs[1]));
  return one_result(inputs[0].dtype, std::move(weights));
}

Inferred infer_max_pool_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  RETURN_IF_ERROR(check_forward(Op::MaxPool, inputs.subspan(1, 1), attrs, inputs[0]));
  return as_second(inputs);
}

Inferred infer_average_pool_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  const Shape &dy = inputs[0].shape, &extents = attr_ints(attrs, "extents");
  if (dy.size() != extents.size() + 2)
    return invalid_input(fmt::format("a gradient {} with {} spatial axes", to_string(inputs[0]), extents.size()));
  Shape x{dy[0], dy[1]};
  x.insert(x.end(), extents.begin(), extents.end());
  ASSIGN_OR_RETURN(const std::vector<TensorType> made, one_result(inputs[0].dtype, x));
  Attrs forward = attrs;
  std::erase_if(forward, [](const Attr& attr) { return attr.name == "extents"; });
  RETURN_IF_ERROR(check_forward(Op::AveragePool, made, forward, inputs[0]));
  return made;
}

Inferred infer_batch_norm_scale_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  const std::vector<TensorType> operands{inputs[1], inputs[2], inputs[2], inputs[2], inputs[3]};
  RETURN_IF_ERROR(check_forward(Op::BatchNormalization, operands, attrs, inputs[0]));
  return one_result(inputs[0].dtype, inputs[2].shape);
}

Inferred infer_batch_norm_training_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  const std::vector<TensorType> operands{inputs[1], inputs[2], inputs[2], inputs[3], inputs[4]};
  RETURN_IF_ERROR(check_forward(Op::BatchNormalization, operands, attrs, inputs[0]));
  return as_second(inputs);
}

Inferred infer_layer_norm_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_forward(Op::LayerNormalization, inputs.subspan(1), attrs, inputs[0]));
  return as_second(inputs);
}

Inferred infer_lrn_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_forward(Op::LRN, inputs.subspan(1), attrs, inputs[0]));
  return infer_same(inputs, attrs);
}

Inferred infer_reduce_prod_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  RETURN_IF_ERROR(check_forward(Op::ReduceProd, inputs.subspan(1), attrs, inputs[0]));
  return as_second(inputs);
}

Inferred infer_det_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_floats(inputs[0], inputs[1]));
  RETURN_IF_ERROR(check_forward(Op::Det, inputs.subspan(1), attrs, inputs[0]));
  return as_second(inputs);
}

Inferred infer_gather_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs.first(1)));
  const Shape &dy = inputs[0].shape, &indices = inputs[1].shape;
  const int64_t axis = attr_int(attrs, "axis"), extent = attr_int(attrs, "extent");
  if (axis < 0 || extent < 1 || dy.size() < indices.size() || static_cast<size_t>(axis) > dy.size() - indices.size())
    return invalid_input(
        fmt::format("a gradient {} by indices {} along axis {}", to_string(inputs[0]), to_string(inputs[1]), axis));
  Shape x(dy.begin(), dy.begin() + axis);
  x.push_back(extent);
  x.insert(x.end(), dy.begin() + axis + static_cast<std::ptrdiff_t>(indices.size()), dy.end());
  const std::vector<TensorType> operands{{inputs[0].dtype, x}, inputs[1]};
  RETURN_IF_ERROR(check_forward(Op::Gather, operands, {{"axis", axis}}, inputs[0]));
  return one_result(inputs[0].dtype, std::move(x));
}

Inferred infer_cross_entropy(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs.first(1)));
  const Shape& logits = inputs[0].shape;
  const Shape rows(logits.begin(), logits.end() - (logits.empty() ? 0 : 1));
  if (!is_whole(inputs[1].dtype) || logits.empty() || inputs[1].shape != rows)
    return invalid_input(fmt::format("logits {} and labels {}", to_string(inputs[0]), to_string(inputs[1])));
  return one_result(inputs[0].dtype, rows);
}

Inferred infer_cross_entropy_gradient(Types inputs, const Attrs& attrs) {
  ASSIGN_OR_RETURN(const std::vector<TensorType> made, infer_cross_entropy(inputs.subspan(1), attrs));
  if (made[0] != inputs[0])
    return invalid_input(fmt::format("a gradient {} of losses {}", to_string(inputs[0]), to_string(made[0])));
  return as_second(inputs);
}

// ---- work. The formulas stand at the rules that make these nodes, in the files of the families.

Flops flops_3(Types, Types out, const Attrs&) { return flops(3 * count(out[0])); }
Flops flops_4(Types, Types out, const Attrs&) { return flops(4 * count(out[0])); }
Flops flops_5(Types, Types out, const Attrs&) { return flops(5 * count(out[0])); }
Flops flops_gelu_gradient(Types, Types out, const Attrs& attrs) {
  return flops((attr_string(attrs, "approximate") == "tanh" ? 16 : 11) * count(out[0]));
}
// Every tap of every output is a multiply-add.
Flops flops_weight_gradient(Types in, Types out, const Attrs&) { return flops(2 * taps_of(out[0]) * count(in[1])); }
Flops flops_window_gradient(Types in, Types, const Attrs& attrs) {
  return flops(static_cast<double>(element_count(attr_ints(attrs, "kernel_shape"))) * count(in[0]));
}
// Less the mean, times dy, and the sum.
Flops flops_batch_norm_scale_gradient(Types in, Types, const Attrs&) { return flops(3 * count(in[0])); }
// The normalized x; its product with dy, and both summed; from them each element.
Flops flops_batch_norm_training_gradient(Types, Types out, const Attrs&) { return flops(9 * count(out[0])); }
// Two sums over the row, and from them each element: 14 operations.
Flops flops_layer_norm_gradient(Types, Types out, const Attrs&) { return flops(14 * count(out[0])); }
// gradient_lrn's, and y again, which that reads: x times the power.
Flops flops_lrn_gradient(Types, Types out, const Attrs& attrs) {
  return flops((3 * static_cast<double>(attr_int(attrs, "size")) + 10) * count(out[0]));
}
Flops flops_cross_entropy(Types in, Types, const Attrs&) { return flops(5 * count(in[0])); }

// A determinant of (n - 1)² for every element.
Flops flops_det_gradient(Types, Types out, const Attrs&) {
  const auto n = static_cast<double>(out[0].shape.back());
  return flops((2.0 / 3.0 * (n - 1) * (n - 1) * (n - 1) + 1) * count(out[0]));
}

// ---- the batch axis: gradients of each element, or row, are apart

bool keeps_two(Types, uint64_t batched, const Attrs&) { return batched == 0b11; }
bool keeps_two_reduced(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 0b11 && info(Op::ReduceProd).keeps_batch(in.subspan(1), 1, attrs);
}
bool keeps_matrices(Types in, uint64_t batched, const Attrs&) { return batched == 0b11 && in[1].shape.size() > 2; }
bool keeps_rows(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[1].shape.size());
  return axis.ok() && *axis > 0 && batched == 0b11;
}
bool keeps_labels(Types in, uint64_t batched, const Attrs&) { return batched == all_of(in) && !in[1].shape.empty(); }

// ---- pieces

// Filters are of the channels of dy; of one group every channel of x stands alone.
bool weight_gradient_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis > 1 || attr_int(q.node.attrs, "group") != 1) return false;
  piece.inputs[1 - q.axis] = along(1, q.begin, q.end);
  return true;
}
bool all_alike(const PieceQuery& q, NodePiece& piece) {
  std::ranges::fill(piece.inputs, same_axis(q));
  return true;
}
bool plane_piece(const PieceQuery& q, NodePiece& piece) { return q.axis < 2 && all_alike(q, piece); }
bool row_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  if (!axis.ok() || q.axis >= *axis) return false;
  piece.inputs[0] = piece.inputs[1] = same_axis(q);
  return true;
}

// ---- gradients

void back_cross_entropy(Backward& b) { b.give(0, b.add(Op::SoftmaxCrossEntropyGradient, {b.dy(), b.x(0), b.x(1)})); }

}  // namespace

// clang-format off
//  operator                         inputs  attributes                   types                            work                             batch              split                  gradient            traits
ROW(ReluGradient,                    2, 2,   no_attrs,                    infer_same,                      flops_each,                      keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(SigmoidGradient,                 2, 2,   no_attrs,                    infer_same,                      flops_3,                         keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(TanhGradient,                    2, 2,   no_attrs,                    infer_same,                      flops_3,                         keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(HardSwishGradient,               2, 2,   no_attrs,                    infer_same,                      flops_3,                         keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(ErfGradient,                     2, 2,   no_attrs,                    infer_same,                      flops_5,                         keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(LeakyReluGradient,               2, 2,   leaky_relu_gradient_attrs,   infer_same,                      flops_each,                      keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(HardSigmoidGradient,             2, 2,   hard_sigmoid_gradient_attrs, infer_same,                      flops_each,                      keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(ClipGradient,                    2, 2,   clip_gradient_attrs,         infer_same,                      flops_each,                      keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(GeluGradient,                    2, 2,   gelu_gradient_attrs,         infer_same,                      flops_gelu_gradient,             keeps_pairs,       broadcast_piece,       of_a_step,          has_kernels | not_in_onnx)
ROW(ConvWeightGradient,              2, 2,   conv_gradient_attrs,         infer_conv_weight_gradient,      flops_weight_gradient,           keeps_none,        weight_gradient_piece, of_a_step,          has_kernels | not_in_onnx)
ROW(MaxPoolGradient,                 2, 2,   max_pool_gradient_attrs,     infer_max_pool_gradient,         flops_window_gradient,           keeps_two,         plane_piece,           of_a_step,          has_kernels | not_in_onnx)
ROW(AveragePoolGradient,             1, 1,   average_pool_gradient_attrs, infer_average_pool_gradient,     flops_window_gradient,           keeps_first,       plane_piece,           of_a_step,          has_kernels | not_in_onnx)
ROW(BatchNormalizationScaleGradient, 4, 4,   epsilon_attrs,               infer_batch_norm_scale_gradient, flops_batch_norm_scale_gradient, keeps_none,        no_split,              of_a_step,          has_kernels | not_in_onnx)
ROW(BatchNormalizationTrainingGradient, 5, 5, epsilon_attrs,          infer_batch_norm_training_gradient, flops_batch_norm_training_gradient, keeps_none,   no_split,              of_a_step,          has_kernels | not_in_onnx)
ROW(LayerNormalizationGradient,      3, 3,   layer_norm_gradient_attrs,   infer_layer_norm_gradient,       flops_layer_norm_gradient,       keeps_rows,        row_piece,             of_a_step,          has_kernels | not_in_onnx)
ROW(LRNGradient,                     2, 2,   lrn_gradient_attrs,          infer_lrn_gradient,              flops_lrn_gradient,              keeps_pairs,       no_split,              of_a_step,          not_in_onnx)
ROW(SoftmaxGradient,                 2, 2,   softmax_gradient_attrs,      infer_axis_gradient,             flops_4,                         keeps_all,         beside_axis,           of_a_step,          has_kernels | not_in_onnx)
ROW(LogSoftmaxGradient,              2, 2,   softmax_gradient_attrs,      infer_axis_gradient,             flops_4,                         keeps_all,         beside_axis,           of_a_step,          has_kernels | not_in_onnx)
ROW(GatherGradient,                  2, 2,   gather_gradient_attrs,       infer_gather_gradient,           flops_reduce,                    keeps_none,        no_split,              of_a_step,          has_kernels | not_in_onnx)
ROW(ReduceProdGradient,              2, 2,   reduce_gradient_attrs,       infer_reduce_prod_gradient,      flops_3,                         keeps_two_reduced, no_split,              of_a_step,          not_in_onnx)
ROW(DetGradient,                     2, 2,   no_attrs,                    infer_det_gradient,              flops_det_gradient,              keeps_matrices,    no_split,              of_a_step,          not_in_onnx)
ROW(SoftmaxCrossEntropy,             2, 2,   no_attrs,                    infer_cross_entropy,             flops_cross_entropy,             keeps_labels,      all_alike,             back_cross_entropy, has_kernels | not_in_onnx)
ROW(SoftmaxCrossEntropyGradient,     3, 3,   no_attrs,                    infer_cross_entropy_gradient,    flops_5,                         keeps_labels,      no_split,              of_a_step,          has_kernels | not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
