// Which MPI this was built for: its launcher has habits of its own.
#pragma once

namespace nlsplit::inline base {

// Else Open MPI. MPICH's launcher (hydra) tells the other ranks with SIGUSR1 that one is gone, passes SIGTERM on at
// once, and ends with all exit codes and signals of the ranks or'ed into one number.
bool built_for_mpich();

}  // namespace nlsplit::inline base
