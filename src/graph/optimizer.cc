#include "graph/optimizer.h"

#include <array>

#include "base/check.h"

namespace nlsplit {
namespace {

constexpr std::array all = {Optimizer::sgd, Optimizer::momentum, Optimizer::adam};

// Of one weight.
double operations(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return 2;
    case Optimizer::momentum:
      return 4;
    case Optimizer::adam:
      return 3 + 4 + 5;  // m; v; root, add, divide, scale, subtract
  }
  CHECK(false, "unknown optimizer");
}

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

std::optional<Optimizer> find_optimizer(std::string_view name) {
  for (const Optimizer optimizer : all) {
    if (name_of(optimizer) == name) return optimizer;
  }
  return std::nullopt;
}

int state_tensors(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return 0;
    case Optimizer::momentum:
      return 1;
    case Optimizer::adam:
      return 2;
  }
  CHECK(false, "unknown optimizer");
}

Flops update_flops(Optimizer optimizer, int64_t elements) {
  return flops(operations(optimizer) * static_cast<double>(elements));
}

}  // namespace nlsplit
