// The devices of a run as ranks of MPI. Only this folder includes mpi.h.
//
//   ASSIGN_OR_RETURN(auto transport, start_mpi({}));     // also without mpirun: one rank
//
// MPI_THREAD_FUNNELED: the thread that starts it owns MPI. It keeps calling MPI_Test and waits in between
// (mpi_waiting.h). What MPI does not tell, that a rank is lost, exec/heartbeat/ finds out. Not to be linked with
// SimGrid, which exports functions of the same names.
#pragma once

#include <memory>

#include "base/result.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

// Ends MPI when destroyed. Errors: MPI does not start, or has no thread support; another rank runs another version, or
// does not answer.
Result<std::unique_ptr<Transport>> start_mpi(TransportOptions options);

// This process' rank before MPI starts, and its number among the ranks of its host, from mpirun, or from srun with one
// of its PMIs; 0 without them.
LaunchedAs launched_by_mpi();

}  // namespace nlsplit::inline exec
