#include "graph/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text_reader.h"
#include "graph/ops_batch.h"
#include "graph/ops_gradient.h"
#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

constexpr AttrSpec conv_attrs[] = {
    {"dilations", 'l'}, {"group", 'i'}, {"kernel_shape", 'l'}, {"pads", 'l'}, {"strides", 'l'}};
constexpr AttrSpec conv_transpose_attrs[] = {{"dilations", 'l'},      {"group", 'i'}, {"kernel_shape", 'l'},
                                             {"output_padding", 'l'}, {"pads", 'l'},  {"strides", 'l'}};
constexpr AttrSpec gemm_attrs[] = {{"alpha", 'f'}, {"beta", 'f'}, {"transA", 'i'}, {"transB", 'i'}};
constexpr AttrSpec leaky_attrs[] = {{"alpha", 'f'}};
constexpr AttrSpec hard_sigmoid_attrs[] = {{"alpha", 'f'}, {"beta", 'f'}};
constexpr AttrSpec gelu_attrs[] = {{"approximate", 's'}};
constexpr AttrSpec attention_attrs[] = {{"causal", 'i'}, {"scale", 'f'}};
constexpr AttrSpec clip_attrs[] = {{"max", 'f'}, {"min", 'f'}};
constexpr AttrSpec max_pool_attrs[] = {
    {"ceil_mode", 'i'}, {"dilations", 'l'}, {"kernel_shape", 'l'}, {"pads", 'l'}, {"strides", 'l'}};
constexpr AttrSpec average_pool_attrs[] = {
    {"ceil_mode", 'i'}, {"count_include_pad", 'i'}, {"kernel_shape", 'l'}, {"pads", 'l'}, {"strides", 'l'}};
constexpr AttrSpec epsilon_attrs[] = {{"epsilon", 'f'}};
constexpr AttrSpec layer_norm_attrs[] = {{"axis", 'i'}, {"epsilon", 'f'}};
constexpr AttrSpec lrn_attrs[] = {{"alpha", 'f'}, {"beta", 'f'}, {"bias", 'f'}, {"size", 'i'}};
constexpr AttrSpec axis_attrs[] = {{"axis", 'i'}};
constexpr AttrSpec reshape_attrs[] = {{"shape", 'l'}};
constexpr AttrSpec transpose_attrs[] = {{"perm", 'l'}};
constexpr AttrSpec reduce_attrs[] = {{"axes", 'l'}, {"keepdims", 'i'}};
constexpr AttrSpec pad_attrs[] = {{"pads", 'l'}, {"value", 'f'}};
constexpr AttrSpec recurrent_attrs[] = {{"direction", 's'}};
constexpr AttrSpec gru_attrs[] = {{"direction", 's'}, {"linear_before_reset", 'i'}};
constexpr AttrSpec alpha_attrs[] = {{"alpha", 'f'}};
constexpr AttrSpec selu_attrs[] = {{"alpha", 'f'}, {"gamma", 'f'}};
constexpr AttrSpec shrink_attrs[] = {{"bias", 'f'}, {"lambd", 'f'}};
constexpr AttrSpec is_inf_attrs[] = {{"detect_negative", 'i'}, {"detect_positive", 'i'}};
constexpr AttrSpec cast_attrs[] = {{"to", 's'}};
constexpr AttrSpec mod_attrs[] = {{"fmod", 'i'}};
constexpr AttrSpec shift_attrs[] = {{"direction", 's'}};
constexpr AttrSpec arg_attrs[] = {{"axis", 'i'}, {"keepdims", 'i'}, {"select_last_index", 'i'}};
constexpr AttrSpec cumsum_attrs[] = {{"axis", 'i'}, {"exclusive", 'i'}, {"reverse", 'i'}};
constexpr AttrSpec top_k_attrs[] = {{"axis", 'i'}, {"k", 'i'}, {"largest", 'i'}, {"sorted", 'i'}};
constexpr AttrSpec tile_attrs[] = {{"repeats", 'l'}};
constexpr AttrSpec slice_attrs[] = {{"axes", 'l'}, {"ends", 'l'}, {"starts", 'l'}, {"steps", 'l'}};
constexpr AttrSpec gather_nd_attrs[] = {{"batch_dims", 'i'}};
constexpr AttrSpec scatter_attrs[] = {{"axis", 'i'}, {"reduction", 's'}};
constexpr AttrSpec scatter_nd_attrs[] = {{"reduction", 's'}};
constexpr AttrSpec one_hot_attrs[] = {{"axis", 'i'}, {"depth", 'i'}};
constexpr AttrSpec reverse_attrs[] = {{"batch_axis", 'i'}, {"time_axis", 'i'}};
constexpr AttrSpec einsum_attrs[] = {{"equation", 's'}};
constexpr AttrSpec resize_attrs[] = {{"antialias", 'i'},
                                     {"coordinate_transformation_mode", 's'},
                                     {"cubic_coeff_a", 'f'},
                                     {"exclude_outside", 'i'},
                                     {"extrapolation_value", 'f'},
                                     {"mode", 's'},
                                     {"nearest_mode", 's'},
                                     {"roi", 'd'},
                                     {"scales", 'd'},
                                     {"sizes", 'l'}};
constexpr AttrSpec lp_pool_attrs[] = {
    {"ceil_mode", 'i'}, {"kernel_shape", 'l'}, {"p", 'i'}, {"pads", 'l'}, {"strides", 'l'}};
constexpr AttrSpec pool_indices_attrs[] = {{"ceil_mode", 'i'}, {"dilations", 'l'},     {"kernel_shape", 'l'},
                                           {"pads", 'l'},      {"storage_order", 'i'}, {"strides", 'l'}};
constexpr AttrSpec roi_align_attrs[] = {{"coordinate_transformation_mode", 's'},
                                        {"mode", 's'},
                                        {"output_height", 'i'},
                                        {"output_width", 'i'},
                                        {"sampling_ratio", 'i'},
                                        {"spatial_scale", 'f'}};
constexpr AttrSpec grid_sample_attrs[] = {{"align_corners", 'i'}, {"mode", 's'}, {"padding_mode", 's'}};
constexpr std::span<const AttrSpec> no_attrs;

// ---- work: a multiplication and an addition are two operations

Flops no_flops(Types, Types, const Attrs&) { return flops(0); }
Flops flops_each(Types, Types out, const Attrs&) { return flops(count(out[0])); }
Flops flops_transcendental(Types, Types out, const Attrs&) {
  return flops(count(out[0]));
}  // a call counts as one operation
// Scale, erf, and (1 + it) x / 2; or x (r + c x²), tanh, and the same.
Flops flops_gelu(Types, Types out, const Attrs& attrs) {
  return flops((attr_string(attrs, "approximate") == "tanh" ? 8 : 5) * count(out[0]));
}
// Weights are [outputs, inputs of a group, spatial extents…].
Flops flops_conv(Types in, Types out, const Attrs&) {
  return flops(2 * taps_of(in[1]) * count(out[0]));  // the bias replaces the first addition's zero
}
// [channels, outputs of a group, spatial extents…]: every input meets so many weights
Flops flops_conv_transpose(Types in, Types, const Attrs&) { return flops(2 * taps_of(in[1]) * count(in[0])); }
Flops flops_gemm(Types in, Types out, const Attrs& attrs) {
  const Shape& a = in[0].shape;
  const double k = static_cast<double>(attr_int(attrs, "transA") != 0 ? a[0] : a[1]);
  return flops(2 * k * count(out[0]));
}
Flops flops_matmul(Types in, Types out, const Attrs&) {
  return flops(2 * static_cast<double>(in[0].shape.back()) * count(out[0]));
}
Flops flops_sum(Types in, Types out, const Attrs&) { return flops(static_cast<double>(in.size() - 1) * count(out[0])); }
Flops flops_pool(Types, Types out, const Attrs& attrs) {
  double taps = 1;
  for (const int64_t extent : attr_ints(attrs, "kernel_shape")) taps *= static_cast<double>(extent);
  return flops(taps * count(out[0]));
}
Flops flops_reduce(Types in, Types, const Attrs&) { return flops(count(in[0])); }
Flops flops_batch_norm(Types, Types out, const Attrs&) { return flops(2 * count(out[0])); }  // scale and shift
Flops flops_normalize(Types, Types out, const Attrs&) {
  return flops(7 * count(out[0]));  // sum; subtract, square, sum; subtract, scale, shift
}
Flops flops_lrn(Types, Types out, const Attrs& attrs) {
  return flops((2 * static_cast<double>(attr_int(attrs, "size")) + 4) *
               count(out[0]));  // squares, sum; scale, shift, power, divide
}
Flops flops_softmax(Types, Types out, const Attrs&) {
  return flops(5 * count(out[0]));
}  // max, subtract, exp, sum, divide

// For each key that a query sees two products, scaled, masked, and a softmax.
Flops flops_attention(Types in, Types out, const Attrs& attrs) {
  const Shape& q = in[0].shape;
  const double queries = static_cast<double>(q[2]), keys = static_cast<double>(in[1].shape[2]);
  const bool causal = attr_int(attrs, "causal") != 0;
  const double seen = static_cast<double>(q[0] * q[1]) * queries * (causal ? keys - (queries - 1) / 2 : keys);
  return flops(seen * static_cast<double>(2 * (q[3] + out[0].shape[3]) + (in.size() > 3 ? 7 : 6)));
}

// Two for an element: the function of it, then the sum.
Flops flops_reduce_function(Types in, Types, const Attrs&) { return flops(2 * count(in[0])); }
// Each element meets a heap of the best k.
Flops flops_top_k(Types in, Types, const Attrs& attrs) {
  return flops(count(in[0]) * (1 + std::log2(static_cast<double>(std::max<int64_t>(attr_int(attrs, "k"), 1)))));
}
// Each update meets an element.
Flops flops_scatter(Types in, Types, const Attrs& attrs) {
  return flops(attr_string(attrs, "reduction") == "none" ? 0 : count(in[2]));
}
// Scale, round, shift, and the two bounds; or shift and scale.
Flops flops_quantize(Types, Types out, const Attrs&) { return flops(5 * count(out[0])); }
Flops flops_dequantize(Types, Types out, const Attrs&) { return flops(2 * count(out[0])); }
// Every combination of the labels is one multiply-add for each operand after the first.
Flops flops_einsum(Types in, Types, const Attrs& attrs) {
  const auto terms = einsum_terms(in, attr_string(attrs, "equation"));
  std::map<int, double> extents;
  for (size_t i = 0; terms.ok() && i < in.size(); ++i) {
    for (size_t axis = 0; axis < terms->inputs[i].size(); ++axis) {
      double& extent = extents[terms->inputs[i][axis]];
      extent = std::max(extent, static_cast<double>(in[i].shape[axis]));
    }
  }
  double all = 2 * static_cast<double>(std::max<size_t>(in.size() - 1, 1));
  for (const auto& [label, extent] : extents) all *= extent;
  return flops(all);
}
// Gaussian elimination of n × n.
Flops flops_det(Types in, Types out, const Attrs&) {
  const auto n = static_cast<double>(in[0].shape.back());
  return flops(2.0 / 3.0 * n * n * n * count(out[0]));
}
// Taps of an output element, a multiply-add each: 1, 2 or 4 an axis that changes, more where it is made smaller and
// smoothed.
Flops flops_resize(Types in, Types out, const Attrs& attrs) {
  const std::string& mode = attr_string(attrs, "mode");
  if (mode == "nearest") return flops(0);
  double taps = 1;
  for (size_t axis = 0; axis < out[0].shape.size(); ++axis) {
    const double spread = attr_int(attrs, "antialias") != 0 ? std::min(1.0, attr_floats(attrs, "scales")[axis]) : 1;
    if (in[0].shape[axis] != out[0].shape[axis]) taps *= (mode == "cubic" ? 4 : 2) / spread;
  }
  return flops(2 * taps * count(out[0]));
}
Flops flops_grid_sample(Types, Types out, const Attrs& attrs) {
  const std::string& mode = attr_string(attrs, "mode");
  const double taps = mode == "nearest" ? 0 : mode == "cubic" ? 16 : 4;
  return flops(2 * taps * count(out[0]));
}
// Four taps a sample; as many samples as the average needs (at least one).
Flops flops_roi_align(Types, Types out, const Attrs& attrs) {
  const auto ratio = static_cast<double>(std::max<int64_t>(attr_int(attrs, "sampling_ratio"), 1));
  return flops(8 * ratio * ratio * count(out[0]));
}

// At every step each row of both weights meets the input and the state; `each`: what is done for a hidden unit besides.
Flops flops_recurrent(Types in, Types out, double each) {
  const double rows = static_cast<double>(in[1].shape[1]), hidden = static_cast<double>(in[2].shape[2]);
  const double products = 2 * rows / hidden * static_cast<double>(in[0].shape[2] + in[2].shape[2]);
  return flops((products + each) * count(out[0]));
}
// Five functions, c = f * c + i * g, o * tanh(c); a multiply-add for each peephole.
Flops flops_lstm(Types in, Types out, const Attrs&) { return flops_recurrent(in, out, in.size() > 6 ? 15 : 9); }
// Three functions, the reset's product, (1 - z) * n + z * h.
Flops flops_gru(Types in, Types out, const Attrs&) { return flops_recurrent(in, out, 8); }
Flops flops_rnn(Types in, Types out, const Attrs&) { return flops_recurrent(in, out, 1); }

// ---- what every inference checks first

bool is_kind(const AttrValue& value, char kind) {
  switch (kind) {
    case 'i':
      return std::holds_alternative<int64_t>(value);
    case 'f':
      return std::holds_alternative<double>(value);
    case 's':
      return std::holds_alternative<std::string>(value);
    case 'd':
      return std::holds_alternative<std::vector<double>>(value);
    case 'l':
      return std::holds_alternative<std::vector<int64_t>>(value);
    default:
      return false;
  }
}

Status check_form(const OpInfo& op, Types inputs, const Attrs& attrs) {
  const auto given = static_cast<int>(inputs.size());
  if (given < op.min_inputs || (op.max_inputs >= 0 && given > op.max_inputs)) {
    return invalid_input(fmt::format("{} inputs, {} takes {}{}", given, op.name, op.min_inputs,
                                     op.max_inputs < 0                ? " or more"
                                     : op.max_inputs == op.min_inputs ? ""
                                                                      : fmt::format(" to {}", op.max_inputs)));
  }
  for (const AttrSpec& spec : op.attrs) {
    const AttrValue* value = find_attr(attrs, spec.name);
    if (value == nullptr) return invalid_input(fmt::format("attribute {} is missing", spec.name));
    if (!is_kind(*value, spec.kind)) return invalid_input(fmt::format("attribute {} has the wrong type", spec.name));
    if (spec.kind == 'f' && std::isnan(std::get<double>(*value)))
      return invalid_input(fmt::format("attribute {} is not a number", spec.name));
  }
  if (attrs.size() != op.attrs.size()) {
    for (const Attr& attr : attrs) {
      const bool known =
          std::any_of(op.attrs.begin(), op.attrs.end(), [&](const AttrSpec& s) { return s.name == attr.name; });
      if (!known) return invalid_input(fmt::format("{} has no attribute {}", op.name, attr.name));
    }
  }
  return ok_status();
}

template <Op op, Inferred (*rule)(Types, const Attrs&)>
Inferred checked(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(check_form(info(op), inputs, attrs));
  return rule(inputs, attrs);
}

// clang-format off
#define ROW(op, least, most, view, attrs, infer, flops, batch, gradient) \
  {Op::op, #op, least, most, view, attrs, checked<Op::op, infer>, flops, batch, gradient}
constexpr OpInfo table[] = {
    //  op                 inputs  view   attributes          types              work                  batch              gradient
    ROW(Conv,               2,  3, false, conv_attrs,         infer_conv,        flops_conv,           keeps_first,  gradient_conv),
    ROW(ConvTranspose,      2,  3, false, conv_transpose_attrs, infer_conv_transpose, flops_conv_transpose, keeps_first,  gradient_conv_transpose),
    ROW(Gemm,               2,  3, false, gemm_attrs,         infer_gemm,        flops_gemm,           keeps_gemm,  gradient_gemm),
    ROW(MatMul,             2,  3, false, no_attrs,           infer_matmul,      flops_matmul,         keeps_matmul,  gradient_matmul),
    ROW(Add,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_add),
    ROW(Sub,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_sub),
    ROW(Mul,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_mul),
    ROW(Div,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_div),
    ROW(Sum,                1, -1, false, no_attrs,           infer_same,        flops_sum,            keeps_broadcast,  gradient_pass),
    ROW(Relu,               1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  gradient_relu),
    ROW(Sigmoid,            1,  1, false, no_attrs,           infer_function,        flops_transcendental, keeps_first,  gradient_sigmoid),
    ROW(Tanh,               1,  1, false, no_attrs,           infer_function,        flops_transcendental, keeps_first,  gradient_tanh),
    ROW(HardSwish,          1,  1, false, no_attrs,           infer_function,        flops_each,           keeps_first,  gradient_hard_swish),
    ROW(Exp,                1,  1, false, no_attrs,           infer_function,        flops_transcendental, keeps_first,  gradient_exp),
    ROW(Sqrt,               1,  1, false, no_attrs,           infer_function,        flops_transcendental, keeps_first,  gradient_sqrt),
    ROW(Neg,                1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  gradient_neg),
    ROW(Erf,                1,  1, false, no_attrs,           infer_function,        flops_transcendental, keeps_first,  gradient_erf),
    ROW(LeakyRelu,          1,  1, false, leaky_attrs,        infer_function,        flops_each,           keeps_first,  gradient_leaky_relu),
    ROW(HardSigmoid,        1,  1, false, hard_sigmoid_attrs, infer_function,        flops_each,           keeps_first,  gradient_clamp),
    ROW(Clip,               1,  1, false, clip_attrs,         infer_same,        flops_each,           keeps_first,  gradient_clamp),
    ROW(MaxPool,            1,  1, false, max_pool_attrs,     infer_max_pool,    flops_pool,           keeps_first,  gradient_max_pool),
    ROW(AveragePool,        1,  1, false, average_pool_attrs, infer_pool,        flops_pool,           keeps_first,  gradient_average_pool),
    ROW(GlobalAveragePool,  1,  1, false, no_attrs,           infer_global_pool, flops_reduce,         keeps_first,  gradient_mean),
    ROW(BatchNormalization, 5,  5, false, epsilon_attrs,      infer_batch_norm,  flops_batch_norm,     keeps_first,  gradient_batch_norm),
    ROW(LayerNormalization, 2,  3, false, layer_norm_attrs,   infer_layer_norm,  flops_normalize,      keeps_layer_norm,  gradient_normalize),
    ROW(InstanceNormalization, 3, 3, false, epsilon_attrs,    infer_instance_norm, flops_normalize,    keeps_first,  gradient_normalize),
    ROW(LRN,                1,  1, false, lrn_attrs,          infer_lrn,         flops_lrn,            keeps_first,  gradient_lrn),
    ROW(Softmax,            1,  1, false, axis_attrs,         infer_axis,        flops_softmax,        keeps_axis,  gradient_softmax),
    ROW(Concat,             1, -1, false, axis_attrs,         infer_concat,      no_flops,             keeps_concat,  gradient_copy),
    ROW(Reshape,            1,  1, true,  reshape_attrs,      infer_reshape,     no_flops,             keeps_reshape,  gradient_pass),
    ROW(Flatten,            1,  1, true,  axis_attrs,         infer_flatten,     no_flops,             keeps_flatten,  gradient_pass),
    ROW(Transpose,          1,  1, false, transpose_attrs,    infer_transpose,   no_flops,             keeps_transpose,  gradient_copy),
    ROW(ReduceMean,         1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce,         keeps_reduce,  gradient_mean),
    ROW(Pad,                1,  1, false, pad_attrs,          infer_pad,         no_flops,             keeps_pad,  gradient_copy),
    ROW(LSTM,               4,  7, false, recurrent_attrs,    infer_lstm,        flops_lstm,           keeps_recurrent,  nullptr),
    ROW(GRU,                4,  5, false, gru_attrs,          infer_gru,         flops_gru,            keeps_recurrent,  nullptr),
    ROW(RNN,                4,  5, false, recurrent_attrs,    infer_rnn,         flops_rnn,            keeps_recurrent,  nullptr),
    ROW(Gelu,               1,  1, false, gelu_attrs,         infer_gelu,        flops_gelu,           keeps_first,  gradient_gelu),
    ROW(Attention,          3,  4, false, attention_attrs,    infer_attention,   flops_attention,      keeps_attention,  nullptr),
    ROW(Identity,           1,  1, true,  no_attrs,           infer_identity,    no_flops,             keeps_first,  gradient_pass),
    ROW(Abs,                1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  nullptr),
    ROW(Acos,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Acosh,              1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Asin,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Asinh,              1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Atan,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Atanh,              1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Ceil,               1,  1, false, no_attrs,           infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Cos,                1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Cosh,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Floor,              1,  1, false, no_attrs,           infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Log,                1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Mish,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Reciprocal,         1,  1, false, no_attrs,           infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Round,              1,  1, false, no_attrs,           infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Sign,               1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  nullptr),
    ROW(Sin,                1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Sinh,               1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Softplus,           1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Softsign,           1,  1, false, no_attrs,           infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Tan,                1,  1, false, no_attrs,           infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Celu,               1,  1, false, alpha_attrs,        infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Elu,                1,  1, false, alpha_attrs,        infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Selu,               1,  1, false, selu_attrs,         infer_function,    flops_transcendental, keeps_first,  nullptr),
    ROW(Shrink,             1,  1, false, shrink_attrs,       infer_same,        flops_each,           keeps_first,  nullptr),
    ROW(ThresholdedRelu,    1,  1, false, alpha_attrs,        infer_function,    flops_each,           keeps_first,  nullptr),
    ROW(Not,                1,  1, false, no_attrs,           infer_not,         flops_each,           keeps_first,  nullptr),
    ROW(BitwiseNot,         1,  1, false, no_attrs,           infer_bits,        flops_each,           keeps_first,  nullptr),
    ROW(IsNaN,              1,  1, false, no_attrs,           infer_test,        flops_each,           keeps_first,  nullptr),
    ROW(IsInf,              1,  1, false, is_inf_attrs,       infer_test,        flops_each,           keeps_first,  nullptr),
    ROW(Cast,               1,  1, false, cast_attrs,         infer_cast,        flops_each,           keeps_first,  nullptr),
    ROW(Pow,                2,  2, false, no_attrs,           infer_pow,         flops_each,           keeps_broadcast,  nullptr),
    ROW(Mod,                2,  2, false, mod_attrs,          infer_broadcast,   flops_each,           keeps_broadcast,  nullptr),
    ROW(PRelu,              2,  2, false, no_attrs,           infer_prelu,       flops_each,           keeps_broadcast,  nullptr),
    ROW(BitShift,           2,  2, false, shift_attrs,        infer_bits,        flops_each,           keeps_broadcast,  nullptr),
    ROW(BitwiseAnd,         2,  2, false, no_attrs,           infer_bits,        flops_each,           keeps_broadcast,  nullptr),
    ROW(BitwiseOr,          2,  2, false, no_attrs,           infer_bits,        flops_each,           keeps_broadcast,  nullptr),
    ROW(BitwiseXor,         2,  2, false, no_attrs,           infer_bits,        flops_each,           keeps_broadcast,  nullptr),
    ROW(And,                2,  2, false, no_attrs,           infer_logic,       flops_each,           keeps_broadcast,  nullptr),
    ROW(Or,                 2,  2, false, no_attrs,           infer_logic,       flops_each,           keeps_broadcast,  nullptr),
    ROW(Xor,                2,  2, false, no_attrs,           infer_logic,       flops_each,           keeps_broadcast,  nullptr),
    ROW(Equal,              2,  2, false, no_attrs,           infer_compare,     flops_each,           keeps_broadcast,  nullptr),
    ROW(Greater,            2,  2, false, no_attrs,           infer_compare,     flops_each,           keeps_broadcast,  nullptr),
    ROW(GreaterOrEqual,     2,  2, false, no_attrs,           infer_compare,     flops_each,           keeps_broadcast,  nullptr),
    ROW(Less,               2,  2, false, no_attrs,           infer_compare,     flops_each,           keeps_broadcast,  nullptr),
    ROW(LessOrEqual,        2,  2, false, no_attrs,           infer_compare,     flops_each,           keeps_broadcast,  nullptr),
    ROW(Where,              3,  3, false, no_attrs,           infer_where,       no_flops,             keeps_broadcast,  nullptr),
    ROW(Max,                1, -1, false, no_attrs,           infer_variadic,    flops_sum,       keeps_broadcast,  nullptr),
    ROW(Mean,               1, -1, false, no_attrs,           infer_variadic,    flops_sum,       keeps_broadcast,  nullptr),
    ROW(Min,                1, -1, false, no_attrs,           infer_variadic,    flops_sum,       keeps_broadcast,  nullptr),
    ROW(ReduceL1,           1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce_function, keeps_reduce,  nullptr),
    ROW(ReduceL2,           1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce_function, keeps_reduce,  nullptr),
    ROW(ReduceLogSum,       1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce,         keeps_reduce,  nullptr),
    ROW(ReduceLogSumExp,    1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce_function, keeps_reduce,  nullptr),
    ROW(ReduceMax,          1,  1, false, reduce_attrs,       infer_reduce_any,  flops_reduce,         keeps_reduce,  nullptr),
    ROW(ReduceMin,          1,  1, false, reduce_attrs,       infer_reduce_any,  flops_reduce,         keeps_reduce,  nullptr),
    ROW(ReduceProd,         1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce,         keeps_reduce,  nullptr),
    ROW(ReduceSum,          1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce,         keeps_reduce,  nullptr),
    ROW(ReduceSumSquare,    1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce_function, keeps_reduce,  nullptr),
    ROW(ArgMax,             1,  1, false, arg_attrs,          infer_arg_reduce,  flops_reduce,         keeps_axis,  nullptr),
    ROW(ArgMin,             1,  1, false, arg_attrs,          infer_arg_reduce,  flops_reduce,         keeps_axis,  nullptr),
    ROW(CumSum,             1,  1, false, cumsum_attrs,       infer_cumsum,      flops_each,           keeps_axis,  nullptr),
    ROW(LogSoftmax,         1,  1, false, axis_attrs,         infer_axis,        flops_softmax,        keeps_axis,  nullptr),
    ROW(TopK,               1,  1, false, top_k_attrs,        infer_top_k,       flops_top_k,          keeps_axis,  nullptr),
    ROW(Expand,             1,  1, false, reshape_attrs,      infer_expand,      no_flops,             keeps_expand,  nullptr),
    ROW(Tile,               1,  1, false, tile_attrs,         infer_tile,        no_flops,             keeps_tile,  nullptr),
    ROW(Slice,              1,  1, false, slice_attrs,        infer_slice,       no_flops,             keeps_slice,  gradient_copy),
    ROW(Gather,             2,  2, false, axis_attrs,         infer_gather,      no_flops,             keeps_gather,  gradient_gather),
    ROW(GatherElements,     2,  2, false, axis_attrs,         infer_gather_elements, no_flops,         keeps_all,  nullptr),
    ROW(GatherND,           2,  2, false, gather_nd_attrs,    infer_gather_nd,   no_flops,             keeps_gather_nd,  nullptr),
    ROW(ScatterElements,    3,  3, false, scatter_attrs,      infer_scatter_elements, flops_scatter,   keeps_all,  nullptr),
    ROW(ScatterND,          3,  3, false, scatter_nd_attrs,   infer_scatter_nd,  flops_scatter,        keeps_none,  nullptr),
    ROW(OneHot,             2,  2, false, one_hot_attrs,      infer_one_hot,     no_flops,             keeps_one_hot,  nullptr),
    ROW(ReverseSequence,    2,  2, false, reverse_attrs,      infer_reverse_sequence, no_flops,        keeps_none,  nullptr),
    ROW(QuantizeLinear,     3,  3, false, axis_attrs,         infer_quantize,    flops_quantize,       keeps_quantize,  nullptr),
    ROW(DequantizeLinear,   2,  3, false, axis_attrs,         infer_dequantize,  flops_dequantize,     keeps_quantize,  nullptr),
    ROW(Einsum,             1, -1, false, einsum_attrs,       infer_einsum,      flops_einsum,         keeps_einsum,  nullptr),
    ROW(Det,                1,  1, false, no_attrs,           infer_det,         flops_det,            keeps_det,  nullptr),
    ROW(Resize,             1,  1, false, resize_attrs,       infer_resize,      flops_resize,         keeps_resize,  nullptr),
    ROW(LpPool,             1,  1, false, lp_pool_attrs,      infer_pool,        flops_pool,           keeps_first,  nullptr),
    ROW(MaxPoolIndices,     1,  1, false, pool_indices_attrs, infer_max_pool_indices, flops_pool,      keeps_none,  nullptr),
    ROW(MaxUnpool,          2,  2, false, reshape_attrs,      infer_max_unpool,  no_flops,             keeps_none,  nullptr),
    ROW(RoiAlign,           3,  3, false, roi_align_attrs,    infer_roi_align,   flops_roi_align,      keeps_none,  nullptr),
    ROW(GridSample,         2,  2, false, grid_sample_attrs,  infer_grid_sample, flops_grid_sample,    keeps_pairs,  nullptr),
};
#undef ROW
// clang-format on

static_assert(std::size(table) == op_count, "every op has its row");
constexpr bool in_order() {
  for (int i = 0; i < op_count; ++i) {
    if (static_cast<int>(table[i].op) != i) return false;
  }
  return true;
}
static_assert(in_order(), "rows stand in the order of the enumerators");

}  // namespace

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  return *this;
}

const OpInfo& info(Op op) { return table[static_cast<size_t>(op)]; }

Result<Op> parse_op(std::string_view name) {
  std::vector<std::string_view> names;
  for (const OpInfo& row : table) {
    if (row.name == name) return row.op;
    names.push_back(row.name);
  }
  const std::string hint = nearest(name, names);
  return unsupported(
      fmt::format("unknown operator {}{}", name, hint.empty() ? "" : fmt::format("; did you mean {}?", hint)));
}

bool is_view(Op op) { return info(op).is_view; }

bool is_unary_elementwise(Op op) {
  switch (op) {
    case Op::Relu:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::HardSwish:
    case Op::LeakyRelu:
    case Op::HardSigmoid:
    case Op::Clip:
    case Op::Gelu:
      return true;
    default:
      return false;  // a new op is no epilogue step until its kernels say so
  }
}

bool is_binary_elementwise(Op op) { return op == Op::Add || op == Op::Sub || op == Op::Mul || op == Op::Div; }

Work work_of(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue, Types inputs, Types outputs) {
  Work work{info(op).flops(inputs, outputs, attrs), bytes(0), bytes(0)};
  for (const TensorType& type : inputs) work.bytes_read += size_of(type);
  for (const TensorType& type : outputs) work.bytes_written += size_of(type);
  // Of a tensor or a table they read what they take out.
  if (op == Op::Slice) work.bytes_read = size_of(outputs[0]);
  if (op == Op::Gather) work.bytes_read = size_of(outputs[0]) + size_of(inputs[1]);
  for (const EpilogueStep& step : epilogue) {
    work.flops += flops(count(outputs[0]));
    if (is_binary_elementwise(step.op)) work.bytes_read += size_of(outputs[0]);
  }
  return work;
}

Result<Gradient> gradient_of(Op op, const GradientQuery& query) {
  const OpInfo& row = info(op);
  if (row.gradient == nullptr) return unsupported(fmt::format("no gradient of {} is known", row.name));
  return row.gradient(query);
}

Work gradient_work(Op op, const GradientQuery& query) {
  const Gradient gradient = gradient_of(op, query).value();
  Work work{gradient.flops, bytes(0), bytes(0)};
  for (const TensorType& type : query.outputs) work.bytes_read += size_of(type);
  if (gradient.keeps_output) work.bytes_read += size_of(query.outputs[0]);
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    if (i < 64 && (gradient.keeps_inputs >> i & 1) != 0) work.bytes_read += size_of(query.inputs[i]);
    if (i < 64 && ((query.by & ~gradient.passes) >> i & 1) != 0) work.bytes_written += size_of(query.inputs[i]);
  }
  return work;
}

std::vector<TensorType> input_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId input : node.inputs) {
    if (input.valid()) types.push_back(graph.value(input).type);
  }
  return types;
}

Work work_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> outputs;
  for (const ValueId output : node.outputs) outputs.push_back(graph.value(output).type);
  return work_of(node.op, node.attrs, node.epilogue, input_types(graph, node), outputs);
}

}  // namespace nlsplit
