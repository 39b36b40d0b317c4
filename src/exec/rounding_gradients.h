// Results of a training step that consist only of rounding errors. A gradient may be zero except for them: the bias of
// an attention's keys does not change the softmax. With another order of sums no digit agrees.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "exec/run.h"

namespace nlsplit::inline exec {

// The least norm of a tensor's gradient that is compared by itself, relative to that of all gradients together.
inline constexpr double least_gradient_norm = 1e-6;

// Names among `wanted`: what the optimizer keeps of a weight whose gradient's moving mean is below that norm in both
// results, and the weight itself where the update divides by the gradient's size (adam, adamw).
std::set<std::string> only_roundings(const std::vector<OutputTensor>& got, const std::vector<OutputTensor>& wanted);

}  // namespace nlsplit::inline exec
