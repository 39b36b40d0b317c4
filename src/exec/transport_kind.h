// TransportKind: how the ranks of a run come to their Transport. exec/transports/ has a row for each kind.
//
//   const TransportKind& kind = *find_transport("threads");
//   if (kind.make_world) … run_threads(program, job, options, kind.make_world)
//   else …                 ASSIGN_OR_RETURN(auto transport, kind.start(options)); run(&program, job, *transport, …)
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "exec/transport.h"

namespace nlsplit::inline exec {

// All ranks of a run in one process.
class World {
 public:
  virtual ~World() = default;
  virtual Transport& endpoint(int rank) = 0;         // for one thread
  virtual std::optional<Error> failure() const = 0;  // why the first abort() happened
};
// `on_failure`: told the first reason for an abort(), on the thread that found it, before anybody else knows.
using MakeWorld = std::unique_ptr<World> (*)(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure);

// What a process knows of itself before its transport starts, if whoever starts it says so.
struct LaunchedAs {
  bool by_launcher = false;
  int rank = 0;
  bool is_first_on_host = true;  // of the ranks on its host the one to say what concerns the host
};

enum class Polling : uint8_t {
  automatic,  // spin if this rank has at least two cores for itself, else sleep
  spin,       // shortest latency; costs a core a rank
  sleep,      // costs 5 to 30 % of a core; adds up to half a millisecond to a message
};

// How rank 0 comes to the others, where each waits for a run: gRPC's workers.
struct Remote {
  std::vector<std::string> workers;  // "host:port" of ranks 1 …
  std::string credentials;           // folder; empty: of this machine alone
  std::string job;                   // told to all workers: what they are to run
  bool (*cancelled)() = nullptr;     // the user has had enough of waiting
};

struct TransportOptions {
  Polling polling = Polling::automatic;
  std::string program = "nlsplit";  // and its version: all ranks must run the same
  // A rank that died, is stopped or is cut off is found out and all others have ended after so many seconds. Must be
  // the same on all ranks. 0: never, and no connections for it.
  double heartbeat_s = 10;
  // So long may all ranks take to start. Must be the same on all ranks. 0: for ever.
  double start_timeout_s = 60;
  Remote remote = {};
  LaunchedAs as;  // while the transport starts, the lowest rank that waits speaks
  // What a start that takes long waits for; on any thread. Default: says nothing.
  std::function<void(const std::string&)> notice;
  // Called when the run ends before its time, on any thread but once; the process then ends with the exit code it
  // answers. `speaks`: this is the rank to say why. Default: prints it.
  std::function<int(const Error& why, bool speaks)> last_words;
};

struct TransportKind {
  std::string_view name, about;
  // Either all ranks are threads of one process,
  MakeWorld make_world = nullptr;
  // or each is a process of its own. Ends with the Transport.
  Result<std::unique_ptr<Transport>> (*start)(TransportOptions options) = nullptr;
  // By a launcher such as mpirun, which wants to know the host of each; null: something else starts them.
  LaunchedAs (*launched_as)() = nullptr;
  // They wait as workers for one run at a time; rank 0 is told where: TransportOptions::remote.
  bool of_workers = false;
  // Messages up to so many bytes start without waiting for their receiver, if nobody sets it otherwise.
  int64_t eager_bytes = 0;
};

}  // namespace nlsplit::inline exec
