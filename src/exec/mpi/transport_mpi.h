// The devices of a run as ranks of MPI. The only file of nlsplit that includes mpi.h is transport_mpi.cc.
//
//   ASSIGN_OR_RETURN(auto transport, start_mpi({}));     // also without mpirun: one rank
//
// MPI_THREAD_FUNNELED: the thread that starts it owns MPI. Open MPI moves messages only inside its calls, so the owner
// keeps calling MPI_Test and sleeps in between: until a socket has news; where messages come other ways than TCP, 50 to
// 500 us; or it only yields where there is a core to spare for it. What MPI does not tell, that a rank is lost,
// exec/heartbeat/ finds out. Not to be linked with SimGrid, which exports functions of the same names.
#pragma once

#include <memory>

#include "base/result.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

// Ends MPI when destroyed. Errors: MPI does not start, or has no thread support; another rank runs another version, or
// does not answer.
Result<std::unique_ptr<Transport>> start_mpi(TransportOptions options);

// What mpirun, or srun with one of its PMIs, told this process before MPI starts: its rank, and which one it is on its
// host; 0 without them.
LaunchedAs launched_by_mpi();

}  // namespace nlsplit::inline exec
