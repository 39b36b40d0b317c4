// LSTM, GRU and RNN: the equations of ONNX's operators, one sample, direction and step at a time, all states in double.
#include <cmath>
#include <vector>

#include "graph/reference/loops.h"

namespace nlsplit::inline graph::reference {
namespace {

using Numbers = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A sample's state in one direction. Element u of gate g is read off:
struct Step {
  const Numbers& from_input;  // W x + Wb, gate after gate
  const Numbers& from_state;  // R h, gate after gate
  const float* state_bias;    // Rb
  int64_t hidden;
  double input(int64_t g, int64_t u) const { return from_input[g * hidden + u]; }
  double state(int64_t g, int64_t u) const { return from_state[g * hidden + u] + state_bias[g * hidden + u]; }
  double both(int64_t g, int64_t u) const { return input(g, u) + state(g, u); }
};

// out[i] = sum of matrix[i, k] * x[k]
Numbers times(const float* matrix, int64_t rows, const Numbers& x) {
  Numbers out(static_cast<size_t>(rows), 0.0);
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t k = 0; k < x.size(); ++k) out[i] += matrix[i * x.size() + k] * x[k];
  }
  return out;
}

Numbers initial(const Inputs& inputs, size_t i, int64_t sample, int64_t direction, int64_t hidden) {
  Numbers state(static_cast<size_t>(hidden), 0.0);
  if (i >= inputs.size() || inputs[i] == nullptr) return state;
  const Shape& shape = inputs[i]->type.shape;
  const float* from = inputs[i]->values.data() + ((shape[0] == 1 ? 0 : sample) * shape[1] + direction) * hidden;
  return {from, from + hidden};
}

// step(direction, h, c, Step): moves h (and c) on by one step.
template <class F>
void walk(const Attrs& attrs, const Inputs& inputs, std::vector<Tensor>& outputs, const F& step) {
  const Shape &x = inputs[0]->type.shape, &w = inputs[1]->type.shape;
  const int64_t batch = x[0], steps = x[1], in = x[2], directions = w[0], rows = w[1];
  const int64_t hidden = inputs[2]->type.shape[2];
  parallel_for(batch * directions, [&](int64_t at) {
    const int64_t s = at / directions, d = at % directions;
    const bool backward = attr_string(attrs, "direction") == "reverse" || d == 1;
    const float *input_bias = inputs[3]->values.data() + d * 2 * rows, *state_bias = input_bias + rows;
    Numbers h = initial(inputs, 4, s, d, hidden), c = initial(inputs, 5, s, d, hidden);
    for (int64_t n = 0; n < steps; ++n) {
      const int64_t t = backward ? steps - 1 - n : n;
      const float* row = inputs[0]->values.data() + (s * steps + t) * in;
      Numbers from_input = times(inputs[1]->values.data() + d * rows * in, rows, Numbers(row, row + in));
      for (int64_t i = 0; i < rows; ++i) from_input[i] += input_bias[i];
      const Numbers from_state = times(inputs[2]->values.data() + d * rows * hidden, rows, h);
      step(d, h, c, Step{from_input, from_state, state_bias, hidden});
      for (int64_t u = 0; u < hidden; ++u)
        outputs[0].values[((s * steps + t) * directions + d) * hidden + u] = static_cast<float>(h[u]);
    }
    for (int64_t u = 0; u < hidden; ++u) {
      outputs[1].values[at * hidden + u] = static_cast<float>(h[u]);
      if (outputs.size() > 2) outputs[2].values[at * hidden + u] = static_cast<float>(c[u]);
    }
  });
}

}  // namespace

// Gates i, o, f, c; peepholes i, o, f.
void lstm(const Attrs& attrs, const Inputs& inputs, std::vector<Tensor>& outputs) {
  walk(attrs, inputs, outputs, [&](int64_t d, Numbers& h, Numbers& c, const Step& gate) {
    const auto hidden = static_cast<int64_t>(h.size());
    const auto peephole = [&](int64_t g, int64_t u) {
      return inputs.size() > 6 ? static_cast<double>(inputs[6]->values[(d * 3 + g) * hidden + u]) : 0.0;
    };
    for (int64_t u = 0; u < hidden; ++u) {
      const double i = sigmoid(gate.both(0, u) + peephole(0, u) * c[u]);
      const double f = sigmoid(gate.both(2, u) + peephole(2, u) * c[u]);
      c[u] = f * c[u] + i * std::tanh(gate.both(3, u));
      h[u] = sigmoid(gate.both(1, u) + peephole(1, u) * c[u]) * std::tanh(c[u]);
    }
  });
}

// Gates z, r, h.
void gru(const Attrs& attrs, const Inputs& inputs, std::vector<Tensor>& outputs) {
  const bool linear_before_reset = attr_int(attrs, "linear_before_reset") != 0;
  walk(attrs, inputs, outputs, [&](int64_t d, Numbers& h, Numbers&, const Step& gate) {
    const auto hidden = static_cast<int64_t>(h.size());
    Numbers reset = h;  // r * h
    for (int64_t u = 0; u < hidden; ++u) reset[u] *= sigmoid(gate.both(1, u));
    const Numbers from_reset = times(inputs[2]->values.data() + (d * 3 + 2) * hidden * hidden, hidden, reset);
    for (int64_t u = 0; u < hidden; ++u) {
      const double z = sigmoid(gate.both(0, u));
      const double state = linear_before_reset ? sigmoid(gate.both(1, u)) * gate.state(2, u)
                                               : from_reset[u] + gate.state_bias[2 * hidden + u];
      h[u] = (1 - z) * std::tanh(gate.input(2, u) + state) + z * h[u];
    }
  });
}

void rnn(const Attrs& attrs, const Inputs& inputs, std::vector<Tensor>& outputs) {
  walk(attrs, inputs, outputs, [&](int64_t, Numbers& h, Numbers&, const Step& gate) {
    for (size_t u = 0; u < h.size(); ++u) h[u] = std::tanh(gate.both(0, static_cast<int64_t>(u)));
  });
}

}  // namespace nlsplit::inline graph::reference
