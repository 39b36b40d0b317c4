// Sums of gradients, for `nlbench profile`. Replicas add up the gradients of a stage, whose size depends on the plan:
// sums of several sizes are measured, and the others predicted from them.
#pragma once

#include <string>

#include "cost/cluster.h"
#include "program/program.h"

namespace nlsplit {

// Adds 2 to 8 slices of 256 to a million elements of its input. model: profiles are kept by it.
Program sums_program(const std::string& model, const Device& device, const std::string& host);

}  // namespace nlsplit
