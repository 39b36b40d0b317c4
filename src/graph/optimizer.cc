#include "graph/optimizer.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "graph/operators/op.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::array all = {Optimizer::sgd, Optimizer::momentum, Optimizer::adam};

}  // namespace

std::span<const Optimizer> all_optimizers() { return all; }

std::string_view name_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return "sgd";
    case Optimizer::momentum:
      return "momentum";
    case Optimizer::adam:
      return "adam";
  }
  CHECK(false, "unknown optimizer");
}

Op update_op(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return Op::SgdUpdate;
    case Optimizer::momentum:
      return Op::MomentumUpdate;
    case Optimizer::adam:
      return Op::AdamUpdate;
  }
  CHECK(false, "unknown optimizer");
}

Attrs update_attrs(Optimizer optimizer, double learning_rate) {
  Attrs attrs;
  set_attr(attrs, "learning_rate", learning_rate);
  if (optimizer == Optimizer::momentum) set_attr(attrs, "decay", 0.9);
  if (optimizer == Optimizer::adam) {
    set_attr(attrs, "beta1", 0.9);
    set_attr(attrs, "beta2", 0.999);
    set_attr(attrs, "epsilon", 1e-8);
  }
  return attrs;
}

double usual_learning_rate(Optimizer optimizer) { return optimizer == Optimizer::adam ? 1e-3 : 1e-2; }

bool is_update(Op op) {
  return std::ranges::any_of(all, [&](Optimizer one) { return update_op(one) == op; });
}

std::vector<TensorType> update_states(Optimizer optimizer, const TensorType& weight) {
  switch (optimizer) {
    case Optimizer::sgd:
      return {};
    case Optimizer::momentum:
      return {weight};
    case Optimizer::adam:
      return {weight, weight, {DType::i64, {1}}};
  }
  CHECK(false, "unknown optimizer");
}

}  // namespace nlsplit::inline graph
