// Sums of gradients, and updates of optimizers (graph/optimizer.h), each element by itself: sum, weight and states may
// be changed where they are. Plain loops: this library's compiler fuses and reorders nothing, so an element's bits do
// not depend on the loop.
#include <algorithm>
#include <cmath>

#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t piece_floats = 16384;  // what a worker takes at a time

template <class F>
void for_elements(const KernelCall& call, F f) {
  const int64_t n = element_count(call.desc->outputs[0].shape);
  parallel_for(call, (n + piece_floats - 1) / piece_floats, [&](int64_t piece) {
    const int64_t end = std::min(n, (piece + 1) * piece_floats);
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

void run_sgd(const KernelCall& call) {
  const float rate = attr(call, "learning_rate");
  const float *from = input(call, 0), *g = input(call, 1);
  float* w = output(call, 0);
  for_elements(call, [=](int64_t i) { w[i] = from[i] - rate * g[i]; });
}

void run_momentum(const KernelCall& call) {
  const float rate = attr(call, "learning_rate"), decay = attr(call, "decay");
  const float *from = input(call, 0), *g = input(call, 1), *velocity = input(call, 2);
  float *w = output(call, 0), *v = output(call, 1);
  for_elements(call, [=](int64_t i) {
    const float changed = decay * velocity[i] + g[i];
    w[i] = from[i] - rate * changed;
    v[i] = changed;
  });
}

void run_adam(const KernelCall& call) {
  const double beta1 = attr_float(call.desc->attrs, "beta1"), beta2 = attr_float(call.desc->attrs, "beta2");
  const auto b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2);
  const auto c1 = static_cast<float>(1 - beta1), c2 = static_cast<float>(1 - beta2);
  const float epsilon = attr(call, "epsilon"), rate = attr(call, "learning_rate");
  const int64_t steps = *static_cast<const int64_t*>(call.inputs[4]) + 1;
  const auto bias1 = static_cast<float>(1 - std::pow(beta1, static_cast<double>(steps)));
  const auto bias2 = static_cast<float>(1 - std::pow(beta2, static_cast<double>(steps)));
  const float *from = input(call, 0), *g = input(call, 1), *mean = input(call, 2), *square = input(call, 3);
  float *w = output(call, 0), *m = output(call, 1), *v = output(call, 2);
  for_elements(call, [=](int64_t i) {
    const float first = b1 * mean[i] + c1 * g[i];
    const float second = b2 * square[i] + c2 * g[i] * g[i];
    w[i] = from[i] - rate * (first / bias1) / (std::sqrt(second / bias2) + epsilon);
    m[i] = first;
    v[i] = second;
  });
  *static_cast<int64_t*>(call.outputs[3]) = steps;
}

void run_update(const KernelCall& call) {
  if (call.desc->op == Op::Accumulate) return run_accumulate(call);
  if (call.desc->op == Op::SgdUpdate) return run_sgd(call);
  if (call.desc->op == Op::MomentumUpdate) return run_momentum(call);
  run_adam(call);
}

}  // namespace

const KernelCode code::update = {run_update};

}  // namespace nlsplit::inline kernels
