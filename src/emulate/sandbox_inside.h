// Inside emulate: what the sandbox's first process does.
#pragma once

#include <signal.h>

#include "emulate/sandbox.h"

namespace nlsplit::inline emulation {

// Never returns: its end is the end of everything inside. `program`: our own file. `mask`: the command's signals.
// `alive`: reads end-of-file when the outer process is gone.
[[noreturn]] void live_inside(const EmulatedNetwork& network, const SandboxOptions& options, const std::string& program,
                              const sigset_t& mask, int alive);

}  // namespace nlsplit::inline emulation
