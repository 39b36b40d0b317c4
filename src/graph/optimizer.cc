#include "graph/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "graph/operators/op.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::array<std::string_view, 1> of_momentum = {".momentum"};
constexpr std::array<std::string_view, 2> of_adam = {".m", ".v"};

struct OptimizerRow {
  Optimizer optimizer;
  std::string_view name;
  Op update;
  std::span<const std::string_view> states;  // tensors kept of a weight
  bool counts_steps;
  double rate, decay;  // usual ones
};
constexpr std::array rows_of_optimizers = {
    OptimizerRow{Optimizer::sgd, "sgd", Op::SgdUpdate, {}, false, 1e-2, 0},
    OptimizerRow{Optimizer::momentum, "momentum", Op::MomentumUpdate, of_momentum, false, 1e-2, 0},
    OptimizerRow{Optimizer::adam, "adam", Op::AdamUpdate, of_adam, true, 1e-3, 0},
    OptimizerRow{Optimizer::adamw, "adamw", Op::AdamWUpdate, of_adam, true, 1e-3, 1e-2},
};
constexpr std::array all = [] {
  std::array<Optimizer, rows_of_optimizers.size()> optimizers{};
  std::ranges::transform(rows_of_optimizers, optimizers.begin(), &OptimizerRow::optimizer);
  return optimizers;
}();

const OptimizerRow& row_of(Optimizer optimizer) {
  const auto row = std::ranges::find(rows_of_optimizers, optimizer, &OptimizerRow::optimizer);
  CHECK(row != rows_of_optimizers.end(), "unknown optimizer");
  return *row;
}

}  // namespace

std::span<const Optimizer> all_optimizers() { return all; }
std::string_view name_of(Optimizer optimizer) { return row_of(optimizer).name; }
Op update_op(Optimizer optimizer) { return row_of(optimizer).update; }
bool counts_steps(Optimizer optimizer) { return row_of(optimizer).counts_steps; }
double usual_rate(Optimizer optimizer) { return row_of(optimizer).rate; }
double usual_decay(Optimizer optimizer) { return row_of(optimizer).decay; }
std::span<const std::string_view> state_names(Optimizer optimizer) { return row_of(optimizer).states; }

bool is_update(Op op) {
  return std::ranges::find(rows_of_optimizers, op, &OptimizerRow::update) != rows_of_optimizers.end();
}

std::vector<TensorType> update_states(Optimizer optimizer, const TensorType& weight) {
  return std::vector<TensorType>(row_of(optimizer).states.size(), weight);
}

TensorType steps_type() { return {DType::i64, {1}}; }
TensorType rate_type() { return {DType::f32, {1}}; }

Attrs update_attrs(Optimizer optimizer, const OptimizerSettings& settings, bool decays) {
  Attrs attrs;
  set_attr(attrs, "decay", decays ? settings.decay.value_or(usual_decay(optimizer)) : 0.0);
  switch (optimizer) {
    case Optimizer::sgd:
      break;
    case Optimizer::momentum:
      set_attr(attrs, "momentum", settings.momentum);
      set_attr(attrs, "nesterov", int64_t{settings.nesterov});
      break;
    case Optimizer::adam:
    case Optimizer::adamw:
      set_attr(attrs, "beta1", settings.beta1);
      set_attr(attrs, "beta2", settings.beta2);
      set_attr(attrs, "epsilon", settings.epsilon);
      break;
  }
  return attrs;
}

Attrs rate_attrs(const RateSchedule& schedule) {
  std::vector<int64_t> begins{0};
  std::vector<double> rates{schedule.peak};
  for (const RateSchedule::Step& step : schedule.steps) {
    begins.push_back(step.begin);
    rates.push_back(step.rate);
  }
  Attrs attrs;
  set_attr(attrs, "begins", begins);
  set_attr(attrs, "cosine", schedule.cosine);
  set_attr(attrs, "floor", schedule.floor);
  set_attr(attrs, "rates", rates);
  set_attr(attrs, "warmup", schedule.warmup);
  return attrs;
}

double rate_at(const Attrs& attrs, int64_t steps_before) {
  const std::vector<double>& rates = attr_floats(attrs, "rates");
  const double peak = rates[0];
  const int64_t warmup = attr_int(attrs, "warmup"), cosine = attr_int(attrs, "cosine");
  if (steps_before < warmup) return peak * static_cast<double>(steps_before + 1) / static_cast<double>(warmup);
  if (cosine > 0) {
    const double floor = attr_float(attrs, "floor");
    const double gone = static_cast<double>(std::min(steps_before - warmup, cosine)) / static_cast<double>(cosine);
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * gone)) / 2;
  }
  const std::vector<int64_t>& begins = attr_ints(attrs, "begins");
  return rates[static_cast<size_t>(std::ranges::upper_bound(begins, steps_before) - begins.begin()) - 1];
}

}  // namespace nlsplit::inline graph
