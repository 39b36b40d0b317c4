// What the ranks of a run must have in common once the Program and the code that computes are known. What is known
// before, they tell each other when they meet (exec/heartbeat/greeting.h).
#pragma once

#include <string>

#include "base/result.h"
#include "exec/collectives.h"
#include "kernels/module/kernel_library.h"
#include "program/program.h"

namespace nlsplit::inline exec {

// All ranks call it. `library`: the kernels this rank loaded; nullptr if it computes nothing on the CPU. Kernels are
// compared within each instruction level, which may differ between devices.
// Error (invalid input), on all ranks: two of them differ. Names both and what each has.
Status check_identity(const Program& program, const KernelLibrary* library, Transport& transport,
                      const Waiting& waiting);

}  // namespace nlsplit::inline exec
