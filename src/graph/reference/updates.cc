// Sums of gradients, updates of optimizers, and what these share in a step (graph/optimizer.h).
#include <algorithm>
#include <cmath>

#include "graph/optimizer.h"
#include "graph/reference/array.h"
#include "graph/sum_of_squares.h"

namespace nlsplit::inline graph::reference {
namespace {

void accumulate(const Arrays& in, Array& sum) {
  for (int64_t i = 0; i < sum.count(); ++i) sum.set(i, in[0]->number(i) + in[1]->number(i));
}

void moving_average(const Attrs& attrs, const Arrays& in, Array& mean) {
  const double momentum = attr_float(attrs, "momentum"), share = momentum * attr_float(attrs, "scale");
  for (int64_t i = 0; i < mean.count(); ++i) mean.set(i, (1 - momentum) * in[0]->number(i) + share * in[1]->number(i));
}

// The rate, and behind it the factor of gradients.
struct StepNumbers {
  StepNumbers(const Arrays& in, size_t rate_at)
      : rate(in[rate_at]->number(0)), scale(in.size() > rate_at + 1 ? in[rate_at + 1]->number(0) : 1) {}
  double rate, scale;
};

void sgd_update(const Attrs& attrs, const Arrays& in, Array& w) {
  const StepNumbers step(in, 2);
  const double decay = attr_float(attrs, "decay");
  for (int64_t i = 0; i < w.count(); ++i) {
    const double before = in[0]->number(i), g = step.scale * in[1]->number(i) + decay * before;
    w.set(i, before - step.rate * g);
  }
}

void momentum_update(const Attrs& attrs, const Arrays& in, Array& w, Array& v) {
  const StepNumbers step(in, 3);
  const double decay = attr_float(attrs, "decay"), momentum = attr_float(attrs, "momentum");
  const bool nesterov = attr_int(attrs, "nesterov") != 0;
  for (int64_t i = 0; i < w.count(); ++i) {
    const double before = in[0]->number(i), g = step.scale * in[1]->number(i) + decay * before;
    v.set(i, momentum * in[2]->number(i) + g);
    w.set(i, before - step.rate * (nesterov ? g + momentum * v.number(i) : v.number(i)));
  }
}

void adam_update(const Attrs& attrs, const Arrays& in, std::vector<Array>& out, bool decoupled) {
  const StepNumbers numbers(in, 5);
  const double b1 = attr_float(attrs, "beta1"), b2 = attr_float(attrs, "beta2");
  const double epsilon = attr_float(attrs, "epsilon"), decay = attr_float(attrs, "decay");
  const double steps = in[4]->number(0) + 1;
  const double rate = numbers.rate / (1 - std::pow(b1, steps)), root = std::sqrt(1 - std::pow(b2, steps));
  const double of_gradient = decoupled ? 0 : decay, of_weight = decoupled ? 1 - numbers.rate * decay : 1;
  Array &w = out[0], &m = out[1], &v = out[2];
  for (int64_t i = 0; i < w.count(); ++i) {
    const double before = in[0]->number(i), g = numbers.scale * in[1]->number(i) + of_gradient * before;
    m.set(i, b1 * in[2]->number(i) + (1 - b1) * g);
    v.set(i, b2 * in[3]->number(i) + (1 - b2) * g * g);
    w.set(i, of_weight * before - rate * (m.number(i) / (std::sqrt(v.number(i)) / root + epsilon)));
  }
}

void sum_of_squares(const Arrays& in, Array& sum) {
  sum.set(0, sum_of_squares_of(in[0]->count(), [&](int64_t i) { return in[0]->number(i); }));
}

void clip_factor(const Attrs& attrs, const Arrays& in, Array& norm, Array& factor) {
  double sum = 0;
  for (const Array* part : in) sum += part->number(0);
  const double root = std::sqrt(sum);
  norm.set(0, root);
  factor.set(0, std::isnan(root) ? root : std::min(1.0, attr_float(attrs, "clip") / (root + 1e-6)));
}

}  // namespace

// clang-format off
NLS_REFERENCE(Accumulate, accumulate(in, out))
NLS_REFERENCE(MovingAverage, moving_average(attrs, in, out))
NLS_REFERENCE(SgdUpdate, sgd_update(attrs, in, out))
NLS_REFERENCE(MomentumUpdate, momentum_update(attrs, in, out, outputs[1]))
NLS_REFERENCE(AdamUpdate, adam_update(attrs, in, outputs, false))
NLS_REFERENCE(AdamWUpdate, adam_update(attrs, in, outputs, true))
NLS_REFERENCE(StepCount, out.set(0, in[0]->number(0) + 1))
NLS_REFERENCE(LearningRate, out.set(0, rate_at(attrs, static_cast<int64_t>(in[0]->number(0)))))
NLS_REFERENCE(SumOfSquares, sum_of_squares(in, out))
NLS_REFERENCE(ClipFactor, clip_factor(attrs, in, out, outputs[1]))
// clang-format on

}  // namespace nlsplit::inline graph::reference
