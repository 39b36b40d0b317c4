// Optimizers: what a step does to each weight w, given its gradient g, and the states it keeps from step to step. The
// rate is that of the step, d is the weight decay; both as PyTorch has them (torch.optim.SGD, Adam, AdamW).
//
//   sgd        g += d w; w -= rate g
//   momentum   g += d w; v = momentum v + g; w -= rate v             Polyak 1964; nesterov: w -= rate (g + momentum v)
//   adam       g += d w                                              (Sutskever et al., ICML 2013)
//              m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;       Kingma and Ba, "Adam", ICLR 2015, algorithm 1
//              w -= rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + e)
//   adamw      w -= rate d w, then adam's with d = 0                 Loshchilov and Hutter, "Decoupled weight decay
//                                                                    regularization", ICLR 2019, algorithm 2
//
// t counts steps from 1 on. With clipping g is the gradient times the factor of all gradients (ClipFactor).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

enum class Optimizer : uint8_t { sgd, momentum, adam, adamw };

std::span<const Optimizer> all_optimizers();
std::string_view name_of(Optimizer optimizer);

// The rate of a step, by the number i of steps before it:
//   i < warmup          peak (i + 1) / warmup
//   behind it, cosine   floor + (peak - floor) (1 + cos(pi min(i - warmup, cosine) / cosine)) / 2
//                                                   Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5, no restarts
//   or steps            the rate of the last entry with begin <= i; before the first one peak
struct RateSchedule {
  double peak = 0;
  int64_t warmup = 0;
  int64_t cosine = 0;  // steps; 0: no decay
  double floor = 0;
  struct Step {
    int64_t begin = 0;
    double rate = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };
  std::vector<Step> steps = {};  // begins ascending; none beside a cosine
  friend bool operator==(const RateSchedule&, const RateSchedule&) = default;
};
Attrs rate_attrs(const RateSchedule& schedule);            // of a LearningRate
double rate_at(const Attrs& attrs, int64_t steps_before);  // of such; from 0 steps on

// PyTorch's usual values. What an optimizer does not have is not looked at.
struct OptimizerSettings {
  std::optional<RateSchedule> rate = {};  // none: usual_rate
  std::optional<double> decay = {};       // of weights; none: usual_decay
  bool decay_matrices_only = false;       // weights of fewer than two dimensions do not decay: norms and biases
  double momentum = 0.9;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};
double usual_rate(Optimizer optimizer);   // of the examples in PyTorch's documentation
double usual_decay(Optimizer optimizer);  // adamw 0.01, else 0

// The node of one weight: its inputs are the weight, the gradient, the states, adam's and adamw's the number of steps
// before (i64[1]), the rate (f32[1]), and where gradients are clipped their factor (f32[1]); its outputs are the new
// weight and the new states.
Op update_op(Optimizer optimizer);
Attrs update_attrs(Optimizer optimizer, const OptimizerSettings& settings, bool decays = true);
bool counts_steps(Optimizer optimizer);  // its update reads the number of steps
bool is_update(Op op);

// What it keeps of a weight, zero at first: 0, 1 or 2 tensors of the weight's type. Their names behind that of the
// weight: ".momentum"; ".m" (the mean), ".v" (the mean of squares).
std::span<const std::string_view> state_names(Optimizer optimizer);
std::vector<TensorType> update_states(Optimizer optimizer, const TensorType& weight);

inline constexpr std::string_view steps_name = "steps";  // a state of each device: the number of steps done
TensorType steps_type();                                 // i64[1]
TensorType rate_type();                                  // f32[1]

}  // namespace nlsplit::inline graph
