// Recurrent layers.
#include <fmt/format.h>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec recurrent_attrs[] = {text("direction", "forward")};
constexpr AttrSpec gru_attrs[] = {text("direction", "forward"), integer("linear_before_reset", 0)};

// ---- types

// `states`: how many tensors go from step to step.
Inferred infer_recurrent(Types inputs, const Attrs& attrs, int64_t gates, size_t states) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape &x = inputs[0].shape, &w = inputs[1].shape, &r = inputs[2].shape;
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    return invalid_input("the input and both weights of a recurrent operator need three axes");
  const std::string& direction = attr_string(attrs, "direction");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return invalid_input(fmt::format("a direction \"{}\"", direction));
  const int64_t directions = direction == "bidirectional" ? 2 : 1, in = x[2], hidden = r[2];
  if (x[0] < 1 || x[1] < 1 || in < 1 || hidden < 1 || hidden > largest_extent / 8)
    return invalid_input(fmt::format("an input {} and {} hidden units", to_string(inputs[0]), hidden));
  const auto check = [&](size_t i, std::string_view what, const Shape& shape) -> Status {
    if (i >= inputs.size() || inputs[i].shape == shape) return ok_status();
    return invalid_input(
        fmt::format("the {} are {}, not {}", what, to_string(inputs[i]), to_string(TensorType{DType::f32, shape})));
  };
  RETURN_IF_ERROR(check(1, "input weights", {directions, gates * hidden, in}));
  RETURN_IF_ERROR(check(2, "recurrent weights", {directions, gates * hidden, hidden}));
  RETURN_IF_ERROR(check(3, "biases", {directions, 2 * gates * hidden}));
  for (size_t i = 4; i < 4 + states; ++i) {
    const bool shared = i < inputs.size() && !inputs[i].shape.empty() && inputs[i].shape[0] == 1;
    RETURN_IF_ERROR(check(i, "initial states", {shared ? 1 : x[0], directions, hidden}));
  }
  RETURN_IF_ERROR(check(4 + states, "peepholes", {directions, 3 * hidden}));
  ASSIGN_OR_RETURN(std::vector<TensorType> types, one_result(inputs[0].dtype, {x[0], x[1], directions, hidden}));
  types.insert(types.end(), states, {inputs[0].dtype, {x[0], directions, hidden}});
  return types;
}

Inferred infer_lstm(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 4, 2); }

Inferred infer_gru(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 3, 1); }

Inferred infer_rnn(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 1, 1); }

// ---- work: a multiplication and an addition are two operations

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

// An initial state is each sample's own, or all samples'.
bool keeps_recurrent(Types in, uint64_t batched, const Attrs&) {
  const size_t states = in[1].shape[1] == 4 * in[2].shape[2] ? 2 : 1;
  for (size_t i = 1; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0, is_state = i >= 4 && i < 4 + states;
    if (is_state ? in[i].shape[0] != (has_samples ? in[0].shape[0] : 1) : has_samples) return false;
  }
  return batch_of_first(batched);
}

// ---- gradients: one operator goes back through time (Werbos, "Backpropagation through time: what it does and how to
// do it", 1990). It computes the states again, so nothing but inputs is kept.

constexpr AttrSpec recurrent_gradient_attrs[] = {text("direction")};
constexpr AttrSpec gru_gradient_attrs[] = {text("direction"), integer("linear_before_reset")};

template <Op gradient, size_t results>
void back_recurrent(Backward& b) {
  std::vector<ValueId> operands;
  for (size_t i = 0; i < results; ++i) operands.push_back(b.dy(i));
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.x(i).valid()) operands.push_back(b.x(i));
  }
  const size_t given = operands.size() - results;
  const std::vector<ValueId> made = b.add_all(gradient, std::move(operands), b.attrs(), given);
  for (size_t i = 0; i < made.size(); ++i) {
    if (b.wants(i)) b.give(i, made[i]);
  }
}
constexpr auto back_lstm = back_recurrent<Op::LSTMGradient, 3>;
constexpr auto back_gru = back_recurrent<Op::GRUGradient, 2>;
constexpr auto back_rnn = back_recurrent<Op::RNNGradient, 2>;

template <Op forward, size_t results>
Inferred infer_recurrent_gradient(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  const Types operands = inputs.subspan(results);
  ASSIGN_OR_RETURN(const std::vector<TensorType> made, info(forward).infer(operands, attrs));
  for (size_t i = 0; i < results; ++i) {
    if (made[i] != inputs[i])
      return invalid_input(fmt::format("a gradient {} of a result {}", to_string(inputs[i]), to_string(made[i])));
  }
  return std::vector<TensorType>(operands.begin(), operands.end());
}
constexpr auto infer_lstm_gradient = infer_recurrent_gradient<Op::LSTM, 3>;
constexpr auto infer_gru_gradient = infer_recurrent_gradient<Op::GRU, 2>;
constexpr auto infer_rnn_gradient = infer_recurrent_gradient<Op::RNN, 2>;

// Every weight meets its operand forward, and on the way back once for the operand and once for itself.
template <Op forward, size_t results>
Flops flops_recurrent_gradient(Types in, Types, const Attrs& attrs) {
  return flops(3 * info(forward).flops(in.subspan(results), in.first(results), attrs).value());
}
constexpr auto flops_lstm_gradient = flops_recurrent_gradient<Op::LSTM, 3>;
constexpr auto flops_gru_gradient = flops_recurrent_gradient<Op::GRU, 2>;
constexpr auto flops_rnn_gradient = flops_recurrent_gradient<Op::RNN, 2>;

}  // namespace

// clang-format off
//  operator      inputs attributes                types                work                 batch            split     gradient   traits
ROW(LSTM,         4, 7,  recurrent_attrs,          infer_lstm,          flops_lstm,          keeps_recurrent, no_split, back_lstm, has_kernels)
ROW(GRU,          4, 5,  gru_attrs,                infer_gru,           flops_gru,           keeps_recurrent, no_split, back_gru,  has_kernels)
ROW(RNN,          4, 5,  recurrent_attrs,          infer_rnn,           flops_rnn,           keeps_recurrent, no_split, back_rnn,  has_kernels)
ROW(LSTMGradient, 7, 10, recurrent_gradient_attrs, infer_lstm_gradient, flops_lstm_gradient, keeps_none,      no_split, of_a_step, not_in_onnx)
ROW(GRUGradient,  6, 7,  gru_gradient_attrs,       infer_gru_gradient,  flops_gru_gradient,  keeps_none,      no_split, of_a_step, not_in_onnx)
ROW(RNNGradient,  6, 7,  recurrent_gradient_attrs, infer_rnn_gradient,  flops_rnn_gradient,  keeps_none,      no_split, of_a_step, not_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
