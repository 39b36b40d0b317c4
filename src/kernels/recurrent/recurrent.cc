// LSTM, GRU and RNN. An element of a gate is the sum of two chains, one over the inputs (kernels/products/product.h,
// for many steps at once) and one over the state, whatever the batch and however the hidden units are shared between
// workers.
#include <algorithm>
#include <cstring>

#include "kernels/functions/unary.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

const float* optional_input(const KernelCall& call, size_t i) {
  return i < call.desc->inputs.size() ? input(call, i) : nullptr;
}

// [batch or 1, directions, hidden]: one direction of a sample.
const float* initial_state(const KernelCall& call, const Recurrent& r, size_t i, int64_t sample, int64_t direction) {
  const float* all = optional_input(call, i);
  if (all == nullptr) return nullptr;
  return all + ((call.desc->inputs[i].shape[0] == 1 ? 0 : sample) * r.directions + direction) * r.hidden;
}

// f(begin, end) for all hidden units, in one piece for each worker.
template <class F>
void for_units(const KernelCall& call, int64_t hidden, const F& f) {
  const int64_t workers = std::max(call.crew.workers, 1);
  const int64_t piece = round_up((hidden + workers - 1) / workers, 2 * product_columns_step);
  parallel_for(call, (hidden + piece - 1) / piece, [&](int64_t i) { f(i * piece, std::min(hidden, (i + 1) * piece)); });
}

// One direction of a call, walked through its steps.
class Walk {
 public:
  // w, r: the direction's, packed; scratch: Recurrent's.
  Walk(const KernelCall& call, const Recurrent& r, int64_t direction, const float* w, const float* rec, float* scratch)
      : call_(call), r_(r), direction_(direction), w_(w), rec_(rec), y_(output(call)) {
    const std::string& way = attr_string(call.desc->attrs, "direction");
    backward_ = way == "reverse" || direction == 1;
    gathered_ = scratch;
    left_ = gathered_ + r.gathered_floats();
    bias_ = left_ + r.left_floats();
    projected_ = bias_ + r.bias_floats();
    gates_ = projected_ + r.projected_floats();
    reset_ = gates_ + r.gates_floats();
    reset_bias_ = input(call, 3) + (direction * 2 * r.gates + 2 * r.gates - 1) * r.hidden;
    if (call.desc->op == Op::LSTM) cell_ = static_cast<float*>(call.outputs[2]) + direction * r.hidden;
    if (const float* peepholes = optional_input(call, 6)) peephole_ = peepholes + direction * 3 * r.hidden;
  }

  void run() {
    add_biases();
    if (cell_ != nullptr) begin_cells();
    for (int64_t first = 0; first < r_.steps; first += r_.steps_at_once) {
      first_ = first;
      count_ = std::min(r_.steps_at_once, r_.steps - first);
      project();
      for (n_ = first; n_ < first + count_; ++n_) step();
    }
    float* last = static_cast<float*>(call_.outputs[1]);
    for (int64_t s = 0; s < r_.batch; ++s)
      copy(state_at(s, r_.steps - 1), last + (s * r_.directions + direction_) * r_.hidden);
  }

 private:
  void copy(const float* from, float* to) const {
    std::memcpy(to, from, static_cast<size_t>(r_.hidden) * sizeof(float));
  }

  int64_t time(int64_t n) const { return backward_ ? r_.steps - 1 - n : n; }
  float* state_at(int64_t sample, int64_t n) const {
    return y_ + ((sample * r_.steps + time(n)) * r_.directions + direction_) * r_.hidden;
  }
  // Of the step before; nullptr: zeros.
  const float* state_before(int64_t sample) const {
    return n_ > 0 ? state_at(sample, n_ - 1) : initial_state(call_, r_, 4, sample, direction_);
  }
  float* cell(int64_t sample) const { return cell_ + sample * r_.directions * r_.hidden; }
  const float* projected(int64_t gate, int64_t sample) const {
    return projected_ + (gate * count_ * r_.batch + (n_ - first_) * r_.batch + sample) * r_.hidden;
  }
  float* gate(int64_t g, int64_t sample) const { return gates_ + (g * r_.batch + sample) * r_.hidden; }

  // Both biases of a gate as one, but where the state's is reset with what it is added to.
  void add_biases() {
    const int64_t n = r_.gates * r_.hidden;
    const float* from = input(call_, 3) + direction_ * 2 * n;
    const bool apart = call_.desc->op == Op::GRU && !r_.resets_first;
    const int64_t both = apart ? n - r_.hidden : n;
    map_row(
        bias_, both, [](const Packet& a, const Packet& b) { return add(a, b); }, from, from + n);
    if (apart) copy(from + both, bias_ + both);
  }

  void begin_cells() {
    for (int64_t s = 0; s < r_.batch; ++s) {
      if (const float* initial = initial_state(call_, r_, 5, s, direction_))
        copy(initial, cell(s));
      else
        std::fill_n(cell(s), r_.hidden, 0.0f);
    }
  }

  // Packed once for all gates and workers; a single row needs no packing. So the products have nothing to write into
  // the workspace they are given.
  Left packed(const Left& rows, int64_t m, int64_t k) {
    if (m == 1) return rows;
    pack_left(rows, m, k, left_);
    return {left_, 0, 0, true};
  }

  // The inputs' part of steps first_ … first_ + count_.
  void project() {
    const int64_t rows = count_ * r_.batch;
    const float* x = input(call_, 0);
    Left left{x + time(first_) * r_.in, backward_ ? -r_.in : r_.in, 1};
    if (r_.batch > 1) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row % r_.batch * r_.steps + time(first_ + row / r_.batch);
        std::memcpy(gathered_ + row * r_.in, x + at * r_.in, static_cast<size_t>(r_.in) * sizeof(float));
      }
      left = {gathered_, r_.in, 1};
    }
    left = packed(left, rows, r_.in);
    for_units(call_, r_.hidden, [&](int64_t begin, int64_t end) {
      for (int64_t g = 0; g < r_.gates; ++g) {
        Finish finish;
        finish.column_bias = bias_ + g * r_.hidden;
        product_columns(begin, end, rows, r_.hidden, r_.in, left,
                        {w_ + g * vector_panels(r_.in, r_.hidden, level), 0, 0, true},
                        projected_ + g * rows * r_.hidden, finish, left_);
      }
    });
  }

  // The states' part of gates [from, to), for hidden units [begin, end); left.data == nullptr: of a state of zeros.
  void meet_state(const Left& left, int64_t from, int64_t to, int64_t begin, int64_t end) {
    for (int64_t g = from; g < to; ++g) {
      if (left.data == nullptr) {
        for (int64_t s = 0; s < r_.batch; ++s) std::fill(gate(g, s) + begin, gate(g, s) + end, 0.0f);
      } else {
        product_columns(begin, end, r_.batch, r_.hidden, r_.hidden, left,
                        {rec_ + g * vector_panels(r_.hidden, r_.hidden, level), 0, 0, true}, gate(g, 0), {}, left_);
      }
    }
  }

  Left states_before() {
    const float* first = state_before(0);
    if (first == nullptr) return {};
    const int64_t stride = r_.batch > 1 ? state_before(1) - first : 0;
    return packed({first, stride, 1}, r_.batch, r_.hidden);
  }

  void step() {
    const Left left = states_before();
    const int64_t gates = r_.resets_first ? 2 : r_.gates;
    for_units(call_, r_.hidden, [&](int64_t begin, int64_t end) {
      meet_state(left, 0, gates, begin, end);
      for (int64_t s = 0; s < r_.batch; ++s) {
        switch (call_.desc->op) {
          case Op::LSTM:
            lstm(s, begin, end);
            break;
          case Op::GRU:
            r_.resets_first ? gru_reset(s, begin, end) : gru(s, begin, end);
            break;
          default:
            rnn(s, begin, end);
        }
      }
    });
    if (!r_.resets_first) return;
    const Left reset = left.data == nullptr ? Left{} : packed({reset_, r_.hidden, 1}, r_.batch, r_.hidden);
    for_units(call_, r_.hidden, [&](int64_t begin, int64_t end) {
      meet_state(reset, 2, 3, begin, end);
      for (int64_t s = 0; s < r_.batch; ++s) gru_after_reset(s, begin, end);
    });
  }

  // f(get, put, u) for every vector of hidden units from u on, the last one shorter; get: zeros where nothing is.
  template <class F>
  static void for_vectors(int64_t begin, int64_t end, const F& f) {
    for (int64_t u = begin; u < end; u += width) {
      const int64_t part = end - u;
      const auto get = [&](const float* row) {
        return row == nullptr ? zeros() : part >= width ? load(row + u) : load_part(row + u, part);
      };
      const auto put = [&](float* row, const Packet& value) {
        part >= width ? store(row + u, value) : store_part(row + u, value, part);
      };
      f(get, put);
    }
  }

  // Gates i, o, f, c; peepholes i, o, f.
  void lstm(int64_t s, int64_t begin, int64_t end) {
    const float *ix = projected(0, s), *ox = projected(1, s), *fx = projected(2, s), *gx = projected(3, s);
    const float *ih = gate(0, s), *oh = gate(1, s), *fh = gate(2, s), *gh = gate(3, s);
    const float *pi = peephole_, *po = pi == nullptr ? nullptr : pi + r_.hidden,
                *pf = pi == nullptr ? nullptr : po + r_.hidden;
    float *c = cell(s), *h = state_at(s, n_);
    for_vectors(begin, end, [&](auto get, auto put) {
      const Packet before = get(c);
      Packet i = add(get(ix), get(ih)), f = add(get(fx), get(fh)), o = add(get(ox), get(oh));
      if (pi != nullptr) {
        i = multiply_add(get(pi), before, i);
        f = multiply_add(get(pf), before, f);
      }
      const Packet g = tanh_of(add(get(gx), get(gh)));
      const Packet now = multiply_add(sigmoid_of(f), before, multiply(sigmoid_of(i), g));
      if (pi != nullptr) o = multiply_add(get(po), now, o);
      put(c, now);
      put(h, multiply(sigmoid_of(o), tanh_of(now)));
    });
  }

  // Gates z, r, h: the next state is (1 - z) * candidate + z * state.
  static Packet mixed(const Packet& z, const Packet& candidate, const Packet& before) {
    return multiply_add(z, before, multiply(subtract(broadcast(1.0f), z), candidate));
  }

  void gru(int64_t s, int64_t begin, int64_t end) {
    const float *zx = projected(0, s), *rx = projected(1, s), *cx = projected(2, s);
    const float *zh = gate(0, s), *rh = gate(1, s), *ch = gate(2, s), *before = state_before(s);
    float* h = state_at(s, n_);
    for_vectors(begin, end, [&](auto get, auto put) {
      const Packet z = sigmoid_of(add(get(zx), get(zh))), r = sigmoid_of(add(get(rx), get(rh)));
      const Packet candidate = tanh_of(multiply_add(r, add(get(ch), get(reset_bias_)), get(cx)));
      put(h, mixed(z, candidate, get(before)));
    });
  }

  void gru_reset(int64_t s, int64_t begin, int64_t end) {
    const float *zx = projected(0, s), *rx = projected(1, s), *rh = gate(1, s), *before = state_before(s);
    float *z = gate(0, s), *reset = reset_ + s * r_.hidden;
    for_vectors(begin, end, [&](auto get, auto put) {
      put(z, sigmoid_of(add(get(zx), get(z))));
      put(reset, multiply(sigmoid_of(add(get(rx), get(rh))), get(before)));
    });
  }

  void gru_after_reset(int64_t s, int64_t begin, int64_t end) {
    const float *cx = projected(2, s), *ch = gate(2, s), *z = gate(0, s), *before = state_before(s);
    float* h = state_at(s, n_);
    for_vectors(begin, end,
                [&](auto get, auto put) { put(h, mixed(get(z), tanh_of(add(get(cx), get(ch))), get(before))); });
  }

  void rnn(int64_t s, int64_t begin, int64_t end) {
    const float *x = projected(0, s), *from_state = gate(0, s);
    float* h = state_at(s, n_);
    for_vectors(begin, end, [&](auto get, auto put) { put(h, tanh_of(add(get(x), get(from_state)))); });
  }

  const KernelCall& call_;
  const Recurrent& r_;
  const int64_t direction_;
  const float *w_, *rec_;
  float* y_;
  bool backward_ = false;
  const float *reset_bias_ = nullptr, *peephole_ = nullptr;
  float *cell_ = nullptr, *gathered_, *left_, *bias_, *projected_, *gates_, *reset_;
  int64_t first_ = 0, count_ = 0, n_ = 0;  // the steps whose inputs' part is there, and the one under way
};

// One direction's gates, each [hidden, k] in ONNX's form.
void pack_direction(const float* raw, int64_t gates, int64_t hidden, int64_t k, float* packed) {
  for (int64_t g = 0; g < gates; ++g)
    pack_right({raw + g * hidden * k, 1, k}, k, hidden, packed + g * vector_panels(k, hidden, level));
}

void run_recurrent_packed(const KernelCall& call) {
  const Recurrent r = recurrent_of(*call.desc);
  for (int64_t d = 0; d < r.directions; ++d) {
    Walk(call, r, d, input(call, 1) + d * r.input_panels(level), input(call, 2) + d * r.state_panels(level),
         workspace(call))
        .run();
  }
}

void run_recurrent_plain(const KernelCall& call) {
  const Recurrent r = recurrent_of(*call.desc);
  float *w = workspace(call) + r.scratch_floats(), *rec = w + r.input_panels(level);
  for (int64_t d = 0; d < r.directions; ++d) {
    pack_direction(input(call, 1) + d * r.gates * r.hidden * r.in, r.gates, r.hidden, r.in, w);
    pack_direction(input(call, 2) + d * r.gates * r.hidden * r.hidden, r.gates, r.hidden, r.hidden, rec);
    Walk(call, r, d, w, rec, workspace(call)).run();
  }
}

void pack_recurrent(const ComputeDesc& desc, size_t i, const void* raw, void* packed) {
  const Recurrent r = recurrent_of(desc);
  const int64_t k = i == 1 ? r.in : r.hidden, panels = i == 1 ? r.input_panels(level) : r.state_panels(level);
  for (int64_t d = 0; d < r.directions; ++d) {
    pack_direction(static_cast<const float*>(raw) + d * r.gates * r.hidden * k, r.gates, r.hidden, k,
                   static_cast<float*>(packed) + d * panels);
  }
}

}  // namespace

const KernelCode code::recurrent_packed = {run_recurrent_packed, pack_recurrent};
const KernelCode code::recurrent = {run_recurrent_plain};

}  // namespace nlsplit::inline kernels
