// Sums of gradients, and updates of optimizers (graph/optimizer.h).
#include <cmath>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

void accumulate(const Arrays& in, Array& sum) {
  for (int64_t i = 0; i < sum.count(); ++i) sum.set(i, in[0]->number(i) + in[1]->number(i));
}

void sgd_update(const Attrs& attrs, const Arrays& in, Array& w) {
  const double rate = attr_float(attrs, "learning_rate");
  for (int64_t i = 0; i < w.count(); ++i) w.set(i, in[0]->number(i) - rate * in[1]->number(i));
}

void momentum_update(const Attrs& attrs, const Arrays& in, Array& w, Array& v) {
  const double rate = attr_float(attrs, "learning_rate"), decay = attr_float(attrs, "decay");
  for (int64_t i = 0; i < w.count(); ++i) {
    v.set(i, decay * in[2]->number(i) + in[1]->number(i));
    w.set(i, in[0]->number(i) - rate * v.number(i));
  }
}

void adam_update(const Attrs& attrs, const Arrays& in, std::vector<Array>& out) {
  const double b1 = attr_float(attrs, "beta1"), b2 = attr_float(attrs, "beta2");
  const double epsilon = attr_float(attrs, "epsilon"), rate = attr_float(attrs, "learning_rate");
  const double steps = in[4]->number(0) + 1;
  const double bias1 = 1 - std::pow(b1, steps), bias2 = 1 - std::pow(b2, steps);
  Array &w = out[0], &m = out[1], &v = out[2];
  for (int64_t i = 0; i < w.count(); ++i) {
    const double g = in[1]->number(i);
    m.set(i, b1 * in[2]->number(i) + (1 - b1) * g);
    v.set(i, b2 * in[3]->number(i) + (1 - b2) * g * g);
    w.set(i, in[0]->number(i) - rate * (m.number(i) / bias1) / (std::sqrt(v.number(i) / bias2) + epsilon));
  }
  out[3].set(0, steps);
}

}  // namespace

// clang-format off
NLS_REFERENCE(Accumulate, accumulate(in, out))
NLS_REFERENCE(SgdUpdate, sgd_update(attrs, in, out))
NLS_REFERENCE(MomentumUpdate, momentum_update(attrs, in, out, outputs[1]))
NLS_REFERENCE(AdamUpdate, adam_update(attrs, in, outputs))
// clang-format on

}  // namespace nlsplit::inline graph::reference
