// Sums of gradients, and updates of optimizers (graph/optimizer.h), each element by itself: sum, weight and states may
// be changed where they are. Plain loops: this library's compiler fuses and reorders nothing, so an element's bits do
// not depend on the loop. Operands are a result's place or apart from it, so that no turn of a loop needs another's
// (ivdep), and the compiler makes vectors of them.
#include <algorithm>
#include <cmath>

#include "graph/sum_of_squares.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t piece_floats = 16384;  // what a worker takes at a time

template <class F>
void for_elements(const KernelCall& call, F f) {
  const int64_t n = element_count(call.desc->outputs[0].shape);
  parallel_for(call, (n + piece_floats - 1) / piece_floats, [&](int64_t piece) {
    const int64_t end = std::min(n, (piece + 1) * piece_floats);
#pragma GCC ivdep
    for (int64_t i = piece * piece_floats; i < end; ++i) f(i);
  });
}

float attr(const KernelCall& call, std::string_view name) {
  return static_cast<float>(attr_float(call.desc->attrs, name));
}

float* output(const KernelCall& call, size_t i) { return static_cast<float*>(call.outputs[i]); }

void run_accumulate(const KernelCall& call) {
  const float *from = input(call, 0), *part = input(call, 1);
  float* sum = output(call, 0);
  for_elements(call, [=](int64_t i) { sum[i] = from[i] + part[i]; });
}

void run_moving_average(const KernelCall& call) {
  const double momentum = attr_float(call.desc->attrs, "momentum");
  const auto kept = static_cast<float>(1 - momentum);
  const auto share = static_cast<float>(momentum * attr_float(call.desc->attrs, "scale"));
  const float *from = input(call, 0), *value = input(call, 1);
  float* mean = output(call, 0);
  for_elements(call, [=](int64_t i) { mean[i] = kept * from[i] + share * value[i]; });
}

// Behind the tensors: the rate, and the factor of gradients; none: 1, by which nothing changes.
struct StepNumbers {
  StepNumbers(const KernelCall& call, size_t rate_at)
      : rate(*input(call, rate_at)), scale(call.desc->own_inputs() > rate_at + 1 ? *input(call, rate_at + 1) : 1.0F) {}
  float rate, scale;
};

void run_sgd(const KernelCall& call) {
  const StepNumbers step(call, 2);
  const float decay = attr(call, "decay"), rate = step.rate, scale = step.scale;
  const float *from = input(call, 0), *g = input(call, 1);
  float* w = output(call, 0);
  for_elements(call, [=](int64_t i) { w[i] = from[i] - rate * (scale * g[i] + decay * from[i]); });
}

void run_momentum(const KernelCall& call) {
  const StepNumbers step(call, 3);
  const float decay = attr(call, "decay"), momentum = attr(call, "momentum"), rate = step.rate, scale = step.scale;
  const float *from = input(call, 0), *g = input(call, 1), *velocity = input(call, 2);
  float *w = output(call, 0), *v = output(call, 1);
  if (attr_int(call.desc->attrs, "nesterov") != 0) {
    for_elements(call, [=](int64_t i) {
      const float gradient = scale * g[i] + decay * from[i];
      const float changed = momentum * velocity[i] + gradient;
      w[i] = from[i] - rate * (gradient + momentum * changed);
      v[i] = changed;
    });
    return;
  }
  for_elements(call, [=](int64_t i) {
    const float changed = momentum * velocity[i] + (scale * g[i] + decay * from[i]);
    w[i] = from[i] - rate * changed;
    v[i] = changed;
  });
}

void run_adam(const KernelCall& call, bool decoupled) {
  const StepNumbers numbers(call, 5);
  const double beta1 = attr_float(call.desc->attrs, "beta1"), beta2 = attr_float(call.desc->attrs, "beta2");
  const double decay = attr_float(call.desc->attrs, "decay");
  const auto b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2);
  const auto c1 = static_cast<float>(1 - beta1), c2 = static_cast<float>(1 - beta2);
  const auto steps = static_cast<double>(whole_at(call, 4, 0) + 1);
  const double whole_rate = numbers.rate;
  const auto rate = static_cast<float>(whole_rate / (1 - std::pow(beta1, steps)));
  const auto root = static_cast<float>(std::sqrt(1 - std::pow(beta2, steps)));
  const auto of_gradient = static_cast<float>(decoupled ? 0 : decay);
  const auto of_weight = static_cast<float>(decoupled ? 1 - whole_rate * decay : 1);
  const float epsilon = attr(call, "epsilon"), scale = numbers.scale;
  const float *from = input(call, 0), *g = input(call, 1), *mean = input(call, 2), *square = input(call, 3);
  float *w = output(call, 0), *m = output(call, 1), *v = output(call, 2);
  for_elements(call, [=](int64_t i) {
    const float gradient = scale * g[i] + of_gradient * from[i];
    const float first = b1 * mean[i] + c1 * gradient;
    const float second = b2 * square[i] + c2 * gradient * gradient;
    w[i] = of_weight * from[i] - rate * (first / (std::sqrt(second) / root + epsilon));
    m[i] = first;
    v[i] = second;
  });
}

void run_step_count(const KernelCall& call) { *static_cast<int64_t*>(call.outputs[0]) = whole_at(call, 0, 0) + 1; }

void run_update(const KernelCall& call) {
  switch (call.desc->op) {
    case Op::Accumulate:
      return run_accumulate(call);
    case Op::MovingAverage:
      return run_moving_average(call);
    case Op::SgdUpdate:
      return run_sgd(call);
    case Op::MomentumUpdate:
      return run_momentum(call);
    case Op::StepCount:
      return run_step_count(call);
    default:
      return run_adam(call, call.desc->op == Op::AdamWUpdate);
  }
}

// Each block's sum by whichever worker is free.
void run_sum_of_squares(const KernelCall& call) {
  const float* x = input(call, 0);
  auto* blocks = static_cast<double*>(call.workspace);
  const int64_t n = element_count(call.desc->inputs[0].shape), count = square_blocks(n);
  parallel_for(call, count, [&](int64_t block) {
    const int64_t begin = block * squares_block;
    blocks[block] = squares_of_block(begin, std::min(n, begin + squares_block),
                                     [x](int64_t i) { return static_cast<double>(x[i]); });
  });
  double sum = 0;
  for (int64_t block = 0; block < count; ++block) sum += blocks[block];
  *static_cast<double*>(call.outputs[0]) = sum;
}

}  // namespace

const KernelCode code::update = {run_update};
const KernelCode code::sum_of_squares = {run_sum_of_squares};

}  // namespace nlsplit::inline kernels
