// A Program with its durations as files that SimGrid's SMPI replays: a second opinion by an independent simulator.
// Time-independent traces: Desprez, Markomanolis, Quinson, Suter, "Assessing the performance of MPI applications
// through time-independent trace replay", ICPP workshops 2011.
//
//   ASSIGN_OR_RETURN(const ReplayFiles files, replay_files(program, graph, cluster));
//   RETURN_IF_ERROR(save(files, "folder"));          // then `sh folder/replay.sh`, or sim/smpi/smpirun.h
//
// A rank is a device: an MPI program of one thread. A block is a `compute` of its seconds on a host of 1 Gflop/s, a
// transfer an `isend` and an `irecv`, each at its place among the computations of its rank: after what it waits for,
// and when the fast tier has it ready. A `wait` stands before the first action that needs what the message brought, or
// the buffer that a message above the eager limit was sent from. Each message has a tag of its own between its two
// ranks. Links are those of the cluster. Each route has one more, which it shares with no other, with its latency.
// docs/opinions.md says what SMPI models differently.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cost/cluster.h"
#include "program/program.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

struct ReplayFiles {
  std::vector<std::pair<std::string, std::string>> files;  // name, content
};

// The script of the folder.
inline constexpr const char* replay_script = "replay.sh";

// `program` and `cluster`: that the graph is of. Errors: online decisions (a trace has an order), noise in the graph, a
// message of 2 GiB or more, which SMPI cannot tell from an eager one.
Result<ReplayFiles> replay_files(const Program& program, const TimedGraph& graph, const Cluster& cluster);

// Writes the folder as a whole.
Status save(const ReplayFiles& files, const std::string& folder);

}  // namespace nlsplit::inline sim
