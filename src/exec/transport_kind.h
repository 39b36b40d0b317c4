// TransportKind: how the ranks of a run get their Transport. exec/transports/ has a row for each kind.
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
// `on_failure`: called with the first reason for an abort(), on the thread that found it, before the run is aborted.
using MakeWorld = std::unique_ptr<World> (*)(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure);

// What the launcher tells a process before its transport starts.
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

// How rank 0 reaches the workers that wait for runs (gRPC).
struct Remote {
  std::vector<std::string> workers;  // "host:port" of ranks 1 …
  std::string credentials;           // folder; empty: of this machine alone
  std::string job;                   // sent to all workers: the kind of the run
  bool (*cancelled)() = nullptr;     // the user has cancelled the wait
};

struct TransportOptions {
  Polling polling = Polling::automatic;
  std::string program = "nlsplit";  // and its version: all ranks must run the same
  // Seconds after which a rank that died, is stopped or is cut off is detected and all others have ended. Must be the
  // same on all ranks. 0: never, and no connections for heartbeats.
  double heartbeat_s = 10;
  // Seconds that all ranks may take to start. Must be the same on all ranks. 0: for ever.
  double start_timeout_s = 60;
  Remote remote = {};
  LaunchedAs as;  // while the transport starts, the lowest rank that waits speaks
  // Called on any thread if the start takes long, with what it waits for. Default: none.
  std::function<void(const std::string&)> notice;
  // Called once, on any thread, when the run ends early; the process then ends with the exit code that it returns.
  // `speaks`: this rank reports the reason. Default: prints the reason.
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
  // The other ranks are workers, which wait for one run at a time; TransportOptions::remote has their addresses.
  bool of_workers = false;
  // Default eager limit: messages up to this size start without waiting for their receiver.
  int64_t eager_bytes = 0;
};

}  // namespace nlsplit::inline exec
