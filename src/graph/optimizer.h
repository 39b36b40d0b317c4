// Optimizers: what a step does to each weight, given its gradient g, and what it keeps from step to step.
//
//   sgd        w -= rate g
//   momentum   v = decay v + g; w -= rate v                          Polyak 1964; as in PyTorch's SGD
//   adam       m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;       Kingma and Ba, "Adam", ICLR 2015, algorithm 1 with
//              w -= rate m / (sqrt(v) + e)                           the corrections of the bias put into rate and e
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/units.h"

namespace nlsplit {

enum class Optimizer : uint8_t { sgd, momentum, adam };

std::span<const Optimizer> all_optimizers();
std::string_view name_of(Optimizer optimizer);
std::optional<Optimizer> find_optimizer(std::string_view name);

int state_tensors(Optimizer optimizer);                     // of a weight's size: 0, 1, 2
Flops update_flops(Optimizer optimizer, int64_t elements);  // a function is one operation

}  // namespace nlsplit
