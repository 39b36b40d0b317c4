#include "graph/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_reader.h"
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
constexpr std::span<const AttrSpec> no_attrs;

double count(const TensorType& type) { return static_cast<double>(element_count(type.shape)); }

// ---- work: a multiplication and an addition are two operations

Flops no_flops(Types, Types, const Attrs&) { return flops(0); }
Flops flops_each(Types, Types out, const Attrs&) { return flops(count(out[0])); }
Flops flops_transcendental(Types, Types out, const Attrs&) {
  return flops(count(out[0]));
}  // a call counts as one operation
Flops flops_conv(Types in, Types out, const Attrs&) {
  const Shape& w = in[1].shape;  // [outputs, inputs of a group, height, width]
  const double taps = static_cast<double>(w[1] * w[2] * w[3]);
  return flops(2 * taps * count(out[0]));  // the bias replaces the first addition's zero
}
Flops flops_conv_transpose(Types in, Types, const Attrs&) {
  const Shape& w = in[1].shape;  // [channels, outputs of a group, height, width]: every input meets so many weights
  return flops(2 * static_cast<double>(w[1] * w[2] * w[3]) * count(in[0]));
}
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

// ---- the batch axis

bool batch_of_first(uint64_t batched) { return (batched & 1) != 0; }

// Input 0 has samples, the others are parameters.
bool keeps_first(Types, uint64_t batched, const Attrs&) { return batched == 1; }
bool keeps_gemm(Types, uint64_t batched, const Attrs& attrs) { return batched == 1 && attr_int(attrs, "transA") == 0; }
bool keeps_matmul(Types in, uint64_t batched, const Attrs&) {
  if (!batch_of_first(batched) || in[0].shape.size() < 2) return false;
  if ((batched & 2) == 0) {  // b must not add axes in front, nor have a matrix of its own for each sample
    const size_t rank = in[0].shape.size();
    return in[1].shape.size() < rank || (in[1].shape.size() == rank && (rank == 2 || in[1].shape[0] == 1));
  }
  return in[0].shape.size() == in[1].shape.size() && in[0].shape.size() >= 3;
}
// Broadcasting element-wise: axis 0 of the result must be the samples' axis of every operand that has one, and no
// other's.
bool keeps_broadcast(Types in, uint64_t batched, const Attrs&) {
  size_t rank = 0;
  for (const TensorType& type : in) rank = std::max(rank, type.shape.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0;
    if (has_samples && in[i].shape.size() != rank) return false;
    if (!has_samples && in[i].shape.size() == rank && in[i].shape[0] != 1) return false;
  }
  return batched != 0;
}
bool keeps_layer_norm(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  return batched == 1 && axis.ok() && *axis != 0;
}
bool keeps_softmax(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  return batched == 1 && axis.ok() && *axis != 0;
}
bool keeps_concat(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  const uint64_t all = in.size() >= 64 ? ~uint64_t{0} : (uint64_t{1} << in.size()) - 1;
  return batched == all && axis.ok() && *axis != 0;
}
bool keeps_reshape(Types in, uint64_t batched, const Attrs& attrs) {
  const auto out = infer_reshape(in, attrs);
  return batched == 1 && out.ok() && !(*out)[0].shape.empty() && !in[0].shape.empty() &&
         (*out)[0].shape[0] == in[0].shape[0];
}
bool keeps_flatten(Types in, uint64_t batched, const Attrs& attrs) {
  const int64_t axis = attr_int(attrs, "axis");
  return batched == 1 && (axis < 0 ? axis + static_cast<int64_t>(in[0].shape.size()) : axis) == 1;
}
bool keeps_transpose(Types, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& perm = attr_ints(attrs, "perm");
  return batched == 1 && !perm.empty() && perm[0] == 0;
}
bool keeps_reduce(Types in, uint64_t batched, const Attrs& attrs) {
  if (batched != 1) return false;
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const auto axis = axis_of(given, in[0].shape.size());
    if (!axis.ok() || *axis == 0) return false;
  }
  return true;
}
bool keeps_pad(Types in, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  return batched == 1 && pads[0] == 0 && pads[in[0].shape.size()] == 0;
}
// An initial state is each sample's own, or all samples'.
bool keeps_recurrent(Types in, uint64_t batched, const Attrs&) {
  const size_t states = in[1].shape[1] == 4 * in[2].shape[2] ? 2 : 1;
  for (size_t i = 1; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0, is_state = i >= 4 && i < 4 + states;
    if (is_state ? in[i].shape[0] != (has_samples ? in[0].shape[0] : 1) : has_samples) return false;
  }
  return batch_of_first(batched);
}

// ---- what every inference checks first

bool is_kind(const AttrValue& value, char kind) {
  switch (kind) {
    case 'i':
      return std::holds_alternative<int64_t>(value);
    case 'f':
      return std::holds_alternative<double>(value);
    case 's':
      return std::holds_alternative<std::string>(value);
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
    ROW(MatMul,             2,  2, false, no_attrs,           infer_matmul,      flops_matmul,         keeps_matmul,  gradient_matmul),
    ROW(Add,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_add),
    ROW(Sub,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_sub),
    ROW(Mul,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_mul),
    ROW(Div,                2,  2, false, no_attrs,           infer_broadcast,   flops_each,           keeps_broadcast,  gradient_div),
    ROW(Sum,                1, -1, false, no_attrs,           infer_same,        flops_sum,            keeps_broadcast,  gradient_pass),
    ROW(Relu,               1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  gradient_relu),
    ROW(Sigmoid,            1,  1, false, no_attrs,           infer_same,        flops_transcendental, keeps_first,  gradient_sigmoid),
    ROW(Tanh,               1,  1, false, no_attrs,           infer_same,        flops_transcendental, keeps_first,  gradient_tanh),
    ROW(HardSwish,          1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  gradient_hard_swish),
    ROW(Exp,                1,  1, false, no_attrs,           infer_same,        flops_transcendental, keeps_first,  gradient_exp),
    ROW(Sqrt,               1,  1, false, no_attrs,           infer_same,        flops_transcendental, keeps_first,  gradient_sqrt),
    ROW(Neg,                1,  1, false, no_attrs,           infer_same,        flops_each,           keeps_first,  gradient_neg),
    ROW(Erf,                1,  1, false, no_attrs,           infer_same,        flops_transcendental, keeps_first,  gradient_erf),
    ROW(LeakyRelu,          1,  1, false, leaky_attrs,        infer_same,        flops_each,           keeps_first,  gradient_leaky_relu),
    ROW(HardSigmoid,        1,  1, false, hard_sigmoid_attrs, infer_same,        flops_each,           keeps_first,  gradient_clamp),
    ROW(Clip,               1,  1, false, clip_attrs,         infer_same,        flops_each,           keeps_first,  gradient_clamp),
    ROW(MaxPool,            1,  1, false, max_pool_attrs,     infer_pool,        flops_pool,           keeps_first,  gradient_max_pool),
    ROW(AveragePool,        1,  1, false, average_pool_attrs, infer_pool,        flops_pool,           keeps_first,  gradient_average_pool),
    ROW(GlobalAveragePool,  1,  1, false, no_attrs,           infer_global_pool, flops_reduce,         keeps_first,  gradient_mean),
    ROW(BatchNormalization, 5,  5, false, epsilon_attrs,      infer_batch_norm,  flops_batch_norm,     keeps_first,  gradient_batch_norm),
    ROW(LayerNormalization, 2,  3, false, layer_norm_attrs,   infer_layer_norm,  flops_normalize,      keeps_layer_norm,  gradient_normalize),
    ROW(InstanceNormalization, 3, 3, false, epsilon_attrs,    infer_instance_norm, flops_normalize,    keeps_first,  gradient_normalize),
    ROW(LRN,                1,  1, false, lrn_attrs,          infer_lrn,         flops_lrn,            keeps_first,  gradient_lrn),
    ROW(Softmax,            1,  1, false, axis_attrs,         infer_axis,        flops_softmax,        keeps_softmax,  gradient_softmax),
    ROW(Concat,             1, -1, false, axis_attrs,         infer_concat,      no_flops,             keeps_concat,  gradient_copy),
    ROW(Reshape,            1,  1, true,  reshape_attrs,      infer_reshape,     no_flops,             keeps_reshape,  gradient_pass),
    ROW(Flatten,            1,  1, true,  axis_attrs,         infer_flatten,     no_flops,             keeps_flatten,  gradient_pass),
    ROW(Transpose,          1,  1, false, transpose_attrs,    infer_transpose,   no_flops,             keeps_transpose,  gradient_copy),
    ROW(ReduceMean,         1,  1, false, reduce_attrs,       infer_reduce,      flops_reduce,         keeps_reduce,  gradient_mean),
    ROW(Pad,                1,  1, false, pad_attrs,          infer_pad,         no_flops,             keeps_pad,  gradient_copy),
    ROW(LSTM,               4,  7, false, recurrent_attrs,    infer_lstm,        flops_lstm,           keeps_recurrent,  nullptr),
    ROW(GRU,                4,  5, false, gru_attrs,          infer_gru,         flops_gru,            keeps_recurrent,  nullptr),
    ROW(RNN,                4,  5, false, recurrent_attrs,    infer_rnn,         flops_rnn,            keeps_recurrent,  nullptr),
    ROW(Identity,           1,  1, true,  no_attrs,           infer_same,        no_flops,             keeps_first,  gradient_pass),
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
