// Compares what must be equal on all ranks of a run, once the kernels' libraries are loaded. Other facts are compared
// when the ranks connect (exec/heartbeat/greeting.h).
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
