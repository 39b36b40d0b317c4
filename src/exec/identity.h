// What the ranks of a run must have in common once the code that computes is known. What is known before, they tell
// each other when they meet (exec/heartbeat/greeting.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "exec/collectives.h"
#include "exec/heartbeat/facts.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::inline exec {

// All ranks call it. `of_device`: what this rank's device computes with (Backend::facts): kernels are compared within
// each instruction level, which may differ between devices.
// Error (invalid input), on all ranks: two of them differ. Names both and what each has.
Status check_identity(const std::vector<Fact>& of_device, Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
