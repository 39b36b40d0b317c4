// Sums of gradients, for `nlbench profile`. Replicas add up the gradients of a stage, whose size depends on the plan:
// sums of several sizes are measured, and the others predicted from them. So are conversions of gradients that travel
// in another type.
#pragma once

#include <string>

#include "cost/cluster.h"
#include "program/program.h"

namespace nlsplit::inline planning {

// Adds 2, 3, 4 or 8 slices of its input, of 256 to a million elements each, and converts such slices to the type of
// `messages` and back. A profile is kept under the name `model`.
Program sums_program(const std::string& model, const Device& device, const std::string& host, DType messages);

}  // namespace nlsplit::inline planning
