// LSTM, GRU and RNN: the equations of ONNX's operators, one sample, direction and step at a time, all states in double;
// and their gradients, by backpropagation through time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

using Numbers = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One direction of a layer. The rows of both matrices are those of the gates, gate after gate.
struct Layer {
  int64_t in, hidden, rows;
  const double *w, *r, *input_bias, *state_bias;
  const double* peepholes;   // of an LSTM: i, o, f; nullptr: none
  bool linear_before_reset;  // of a GRU
};

// What a step has computed, and what its gradient reads of it.
struct Step {
  Numbers h, c;   // before it
  Numbers input;  // W x + Wb
  Numbers state;  // R h + Rb
  Numbers gates;  // after their functions
  Numbers reset;  // of a GRU: r h
  double both(size_t at) const { return input[at] + state[at]; }
};

// out[i] = Σ matrix[i, k] x[k]
Numbers times(const double* matrix, int64_t rows, const Numbers& x) {
  Numbers out(static_cast<size_t>(rows), 0.0);
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t k = 0; k < x.size(); ++k) out[i] += matrix[i * x.size() + k] * x[k];
  }
  return out;
}
void add_bias(Numbers& to, const double* bias) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += bias[i];
}
// x[k] += Σ matrix[i, k] y[i], matrix[i, k] += y[i] z[k]: rows [begin, end).
void go_back(const double* matrix, size_t begin, size_t end, const Numbers& y, double* x, size_t columns) {
  for (size_t i = begin; i < end; ++i) {
    for (size_t k = 0; k < columns; ++k) x[k] += matrix[i * columns + k] * y[i];
  }
}
void add_products(double* matrix, size_t begin, size_t end, const Numbers& y, const double* z, size_t columns) {
  for (size_t i = begin; i < end; ++i) {
    for (size_t k = 0; k < columns; ++k) matrix[i * columns + k] += y[i] * z[k];
  }
}

// Gradients of a step: by h and c, which it turns from after the step to before it, apart from what goes by R; by W x +
// Wb and by R h + Rb (gate after gate); by the peepholes, added.
struct Back {
  Numbers h, c, input, state;
  double* peepholes = nullptr;
};

// ---- LSTM: gates i, o, f, c

double peephole(const Layer& l, size_t gate, size_t u) {
  return l.peepholes == nullptr ? 0.0 : l.peepholes[gate * static_cast<size_t>(l.hidden) + u];
}

void lstm_step(const Layer& l, Step& s, Numbers& h, Numbers& c) {
  const size_t n = h.size();
  for (size_t u = 0; u < n; ++u) {
    s.gates[u] = sigmoid(s.both(u) + peephole(l, 0, u) * c[u]);
    s.gates[2 * n + u] = sigmoid(s.both(2 * n + u) + peephole(l, 2, u) * c[u]);
    s.gates[3 * n + u] = std::tanh(s.both(3 * n + u));
    c[u] = s.gates[2 * n + u] * c[u] + s.gates[u] * s.gates[3 * n + u];
    s.gates[n + u] = sigmoid(s.both(n + u) + peephole(l, 1, u) * c[u]);
    h[u] = s.gates[n + u] * std::tanh(c[u]);
  }
}

void lstm_back(const Layer& l, const Step& s, Back& d) {
  const size_t n = d.h.size();
  for (size_t u = 0; u < n; ++u) {
    const double i = s.gates[u], o = s.gates[n + u], f = s.gates[2 * n + u], g = s.gates[3 * n + u], before = s.c[u];
    const double c = f * before + i * g, curve = std::tanh(c);
    const double by_o = d.h[u] * curve * o * (1 - o);
    const double by_c = d.c[u] + d.h[u] * o * (1 - curve * curve) + by_o * peephole(l, 1, u);
    const double by_i = by_c * g * i * (1 - i), by_f = by_c * before * f * (1 - f), by_g = by_c * i * (1 - g * g);
    const double gates[] = {by_i, by_o, by_f, by_g};
    for (size_t gate = 0; gate < 4; ++gate) d.input[gate * n + u] = d.state[gate * n + u] = gates[gate];
    d.c[u] = by_c * f + by_i * peephole(l, 0, u) + by_f * peephole(l, 2, u);
    d.h[u] = 0;
    if (d.peepholes == nullptr) continue;
    d.peepholes[u] += by_i * before;
    d.peepholes[n + u] += by_o * c;
    d.peepholes[2 * n + u] += by_f * before;
  }
}

// ---- GRU: gates z, r, h

void gru_step(const Layer& l, Step& s, Numbers& h, Numbers&) {
  const size_t n = h.size();
  for (size_t u = 0; u < n; ++u) s.gates[n + u] = sigmoid(s.both(n + u));
  s.reset = h;
  for (size_t u = 0; u < n; ++u) s.reset[u] *= s.gates[n + u];
  Numbers from_reset(n, 0.0);
  if (!l.linear_before_reset) {
    from_reset = times(l.r + 2 * n * n, l.hidden, s.reset);
    add_bias(from_reset, l.state_bias + 2 * n);
  }
  for (size_t u = 0; u < n; ++u) {
    const double z = s.gates[u] = sigmoid(s.both(u));
    const double state = l.linear_before_reset ? s.gates[n + u] * s.state[2 * n + u] : from_reset[u];
    s.gates[2 * n + u] = std::tanh(s.input[2 * n + u] + state);
    h[u] = (1 - z) * s.gates[2 * n + u] + z * h[u];
  }
}

void gru_back(const Layer& l, const Step& s, Back& d) {
  const size_t n = d.h.size();
  Numbers by_reset(n, 0.0), by_candidate(3 * n, 0.0);
  for (size_t u = 0; u < n; ++u) {
    const double g = s.gates[2 * n + u];
    by_candidate[2 * n + u] = d.h[u] * (1 - s.gates[u]) * (1 - g * g);
  }
  if (!l.linear_before_reset) go_back(l.r, 2 * n, 3 * n, by_candidate, by_reset.data(), n);
  for (size_t u = 0; u < n; ++u) {
    const double z = s.gates[u], r = s.gates[n + u], g = s.gates[2 * n + u], before = s.h[u];
    const double by_g = by_candidate[2 * n + u];
    const double by_r = l.linear_before_reset ? by_g * s.state[2 * n + u] : by_reset[u] * before;
    d.input[u] = d.state[u] = d.h[u] * (before - g) * z * (1 - z);
    d.input[n + u] = d.state[n + u] = by_r * r * (1 - r);
    d.input[2 * n + u] = by_g;
    d.state[2 * n + u] = l.linear_before_reset ? by_g * r : by_g;
    d.h[u] = d.h[u] * z + by_reset[u] * r;
  }
}

// ---- RNN

void rnn_step(const Layer&, Step& s, Numbers& h, Numbers&) {
  for (size_t u = 0; u < h.size(); ++u) h[u] = s.gates[u] = std::tanh(s.both(u));
}

void rnn_back(const Layer&, const Step& s, Back& d) {
  for (size_t u = 0; u < d.h.size(); ++u) {
    d.input[u] = d.state[u] = d.h[u] * (1 - s.gates[u] * s.gates[u]);
    d.h[u] = 0;
  }
}

struct Cell {
  size_t states;  // that go from step to step
  void (*step)(const Layer&, Step&, Numbers& h, Numbers& c);
  void (*back)(const Layer&, const Step&, Back&);
};
constexpr Cell lstm_cell{2, lstm_step, lstm_back}, gru_cell{1, gru_step, gru_back}, rnn_cell{1, rnn_step, rnn_back};

// ---- over all steps

struct Extents {
  int64_t batch, steps, in, directions, rows, hidden;
};
Extents extents_of(const Arrays& inputs) {
  const Shape &x = inputs[0]->type.shape, &w = inputs[1]->type.shape;
  return {x[0], x[1], x[2], w[0], w[1], inputs[2]->type.shape[2]};
}

Layer layer_of(const Cell& cell, const Attrs& attrs, const Arrays& inputs, int64_t d) {
  const Extents e = extents_of(inputs);
  const double* bias = inputs[3]->reals.data() + d * 2 * e.rows;
  const bool has_peepholes = cell.states == 2 && inputs.size() > 6 && inputs[6] != nullptr;
  return {e.in,
          e.hidden,
          e.rows,
          inputs[1]->reals.data() + d * e.rows * e.in,
          inputs[2]->reals.data() + d * e.rows * e.hidden,
          bias,
          bias + e.rows,
          has_peepholes ? inputs[6]->reals.data() + d * 3 * e.hidden : nullptr,
          find_attr(attrs, "linear_before_reset") != nullptr && attr_int(attrs, "linear_before_reset") != 0};
}

// Where a sample's initial state begins; a state of one sample is every sample's.
int64_t state_at(const Shape& shape, int64_t sample, int64_t d) {
  return ((shape[0] == 1 ? 0 : sample) * shape[1] + d) * shape[2];
}

// Calls visit(time, step, h, c) after each step; h and c are the states then.
template <class Visit>
void run(const Cell& cell, const Attrs& attrs, const Arrays& inputs, int64_t sample, int64_t d, const Visit& visit) {
  const Extents e = extents_of(inputs);
  const Layer layer = layer_of(cell, attrs, inputs, d);
  const bool backward = attr_string(attrs, "direction") == "reverse" || d == 1;
  const auto initial = [&](size_t i) {
    if (i >= 4 + cell.states || i >= inputs.size() || inputs[i] == nullptr)
      return Numbers(static_cast<size_t>(e.hidden), 0.0);
    const auto from = inputs[i]->reals.begin() + state_at(inputs[i]->type.shape, sample, d);
    return Numbers(from, from + e.hidden);
  };
  Numbers h = initial(4), c = initial(5);
  for (int64_t n = 0; n < e.steps; ++n) {
    const int64_t t = backward ? e.steps - 1 - n : n;
    const auto row = inputs[0]->reals.begin() + (sample * e.steps + t) * e.in;
    Step step{h, c, times(layer.w, e.rows, Numbers(row, row + e.in)), times(layer.r, e.rows, h), {}, {}};
    step.gates.assign(static_cast<size_t>(e.rows), 0.0);
    add_bias(step.input, layer.input_bias);
    add_bias(step.state, layer.state_bias);
    cell.step(layer, step, h, c);
    visit(t, step, h, c);
  }
}

void recurrent(const Cell& cell, const Attrs& attrs, const Arrays& inputs, std::vector<Array>& outputs) {
  const Extents e = extents_of(inputs);
  parallel_for(e.batch * e.directions, [&](int64_t at) {
    const int64_t s = at / e.directions, d = at % e.directions;
    run(cell, attrs, inputs, s, d, [&](int64_t t, const Step&, const Numbers& h, const Numbers& c) {
      for (int64_t u = 0; u < e.hidden; ++u) {
        const auto of = static_cast<size_t>(u);
        outputs[0].set(((s * e.steps + t) * e.directions + d) * e.hidden + u, h[of]);
        outputs[1].set(at * e.hidden + u, h[of]);
        if (cell.states == 2) outputs[2].set(at * e.hidden + u, c[of]);
      }
    });
  });
}

// in: gradients by each step's state and by the last states, then the operator's inputs; outputs: by these.
void recurrent_gradient(const Cell& cell, const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs) {
  const size_t results = 1 + cell.states;
  const Arrays inputs(in.begin() + static_cast<std::ptrdiff_t>(results), in.end());
  const Extents e = extents_of(inputs);
  std::vector<Numbers> sums;
  for (const Array& output : outputs) sums.emplace_back(static_cast<size_t>(output.count()), 0.0);
  const auto rows = static_cast<size_t>(e.rows), hidden = static_cast<size_t>(e.hidden),
             width = static_cast<size_t>(e.in);
  for (int64_t at = 0; at < e.batch * e.directions; ++at) {
    const int64_t s = at / e.directions, d = at % e.directions;
    const Layer layer = layer_of(cell, attrs, inputs, d);
    std::vector<std::pair<int64_t, Step>> steps;
    run(cell, attrs, inputs, s, d,
        [&](int64_t t, Step& step, const Numbers&, const Numbers&) { steps.emplace_back(t, std::move(step)); });
    const auto last = [&](size_t i) {
      const auto from = in[i]->reals.begin() + at * e.hidden;
      return Numbers(from, from + e.hidden);
    };
    Back back{last(1), cell.states == 2 ? last(2) : Numbers(hidden, 0.0), Numbers(rows, 0.0), Numbers(rows, 0.0)};
    if (layer.peepholes != nullptr) back.peepholes = sums[6].data() + d * 3 * e.hidden;
    double *dx = sums[0].data(), *dw = sums[1].data() + d * e.rows * e.in, *dr = sums[2].data() + d * e.rows * e.hidden,
           *db = sums[3].data() + d * 2 * e.rows;
    // A GRU that resets first: the candidate's rows of R have met r h.
    const bool resets_first = !steps[0].second.reset.empty() && !layer.linear_before_reset;
    const size_t by_state = resets_first ? 2 * hidden : rows;
    for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
      const auto& [t, step] = *it;
      for (size_t u = 0; u < hidden; ++u)
        back.h[u] += in[0]->number(((s * e.steps + t) * e.directions + d) * e.hidden + static_cast<int64_t>(u));
      cell.back(layer, step, back);
      const int64_t row = (s * e.steps + t) * e.in;
      go_back(layer.w, 0, rows, back.input, dx + row, width);
      add_products(dw, 0, rows, back.input, inputs[0]->reals.data() + row, width);
      go_back(layer.r, 0, by_state, back.state, back.h.data(), hidden);
      add_products(dr, 0, by_state, back.state, step.h.data(), hidden);
      if (resets_first) add_products(dr, by_state, rows, back.state, step.reset.data(), hidden);
      for (size_t i = 0; i < rows; ++i) db[i] += back.input[i], db[rows + i] += back.state[i];
    }
    for (size_t i = 4; i < std::min(4 + cell.states, outputs.size()); ++i) {
      const Numbers& before = i == 4 ? back.h : back.c;
      double* to = sums[i].data() + state_at(outputs[i].type.shape, s, d);
      for (size_t u = 0; u < hidden; ++u) to[u] += before[u];
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (int64_t k = 0; k < outputs[i].count(); ++k) outputs[i].set(k, sums[i][static_cast<size_t>(k)]);
  }
}

}  // namespace

// clang-format off
NLS_REFERENCE(LSTM, recurrent(lstm_cell, attrs, in, outputs))
NLS_REFERENCE(GRU, recurrent(gru_cell, attrs, in, outputs))
NLS_REFERENCE(RNN, recurrent(rnn_cell, attrs, in, outputs))
NLS_REFERENCE(LSTMGradient, recurrent_gradient(lstm_cell, attrs, in, outputs))
NLS_REFERENCE(GRUGradient, recurrent_gradient(gru_cell, attrs, in, outputs))
NLS_REFERENCE(RNNGradient, recurrent_gradient(rnn_cell, attrs, in, outputs))
// clang-format on

}  // namespace nlsplit::inline graph::reference
