// The devices of a run as ranks of MPI. The only file of nlsplit that includes mpi.h is transport_mpi.cc.
//
//   ASSIGN_OR_RETURN(auto transport, start_mpi({}));     // also without mpirun: one rank
//
// MPI_THREAD_FUNNELED: the thread that starts it owns MPI. Open MPI moves messages only inside its calls, so the owner
// keeps calling MPI_Test and sleeps 50 to 500 us in between (longer while nothing happens), or only yields where there
// is a core to spare for it. Not to be linked with SimGrid, which exports functions of the same names.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "exec/transport.h"

namespace nlsplit {

enum class Polling : uint8_t {
  automatic,  // spin if this rank has at least two cores for itself, else sleep
  spin,       // shortest latency; costs a core a rank
  sleep,      // costs 5 to 30 % of a core; adds up to half a millisecond to a message
};

struct MpiOptions {
  Polling polling = Polling::automatic;
  // abort() calls it, then ends the process with the exit code it answers. Default: prints the reason, 1.
  std::function<int(const std::string& why)> last_words;
};

// Ends MPI when destroyed. Errors: MPI does not start, or has no thread support.
Result<std::unique_ptr<Transport>> start_mpi(MpiOptions options);

}  // namespace nlsplit
