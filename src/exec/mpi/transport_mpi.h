// The devices of a run as ranks of MPI. The only file of nlsplit that includes mpi.h is transport_mpi.cc.
//
//   ASSIGN_OR_RETURN(auto transport, start_mpi({}));     // also without mpirun: one rank
//
// MPI_THREAD_FUNNELED: the thread that starts it owns MPI. Open MPI moves messages only inside its calls, so the owner
// keeps calling MPI_Test and sleeps 50 to 500 us in between (longer while nothing happens), or only yields where there
// is a core to spare for it. What MPI does not tell, that a rank is lost, exec/heartbeat/ finds out. Not to be
// linked with SimGrid, which exports functions of the same names.
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
  std::string program = "nlsplit";  // and its version: all ranks must run the same
  // A rank that died, is stopped or is cut off is found out and all others have ended after so many seconds. Must be
  // the same on all ranks. 0: never, and no connections for it.
  double heartbeat_s = 10;
  // So long may all ranks take to start. Must be the same on all ranks. 0: for ever.
  double start_timeout_s = 60;
  // Which one this is going to be, if whoever starts it knows: while MPI starts, the lowest that waits speaks.
  int rank = 0;
  bool is_first_on_host = true;  // of the ranks on its host the one to say what concerns the host
  // What a start that takes long waits for; on any thread. Default: says nothing.
  std::function<void(const std::string&)> notice;
  // Called when the run ends before its time, on any thread but once; the process then ends with the exit code it
  // answers. `speaks`: this is the rank to say why. Default: prints it.
  std::function<int(const Error& why, bool speaks)> last_words;
};

// Ends MPI when destroyed. Errors: MPI does not start, or has no thread support; another rank runs another version, or
// does not answer.
Result<std::unique_ptr<Transport>> start_mpi(MpiOptions options);

}  // namespace nlsplit
