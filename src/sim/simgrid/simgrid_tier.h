// The SimGrid tier: the same activities over shared links (max-min fair), with SimGrid's kernel as the clock.
// Transfers of B bytes alone on their route take latency + B/bandwidth exactly (network model CM02 without TCP corrections; latency is
// waited after the last byte, so that sharing does not depend on it).
#pragma once

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit {

// SimGrid's engine is one for a process and cannot be undone: each call may run in the calling process only if it is the first with this
// cluster; SimGridTier keeps the engine and runs plan after plan in it. Not thread-safe.
class SimGridTier {
 public:
  static Result<SimGridTier*> instance(const Cluster& cluster);   // error: another cluster was loaded in this process
  Result<Timing> simulate(const TimedGraph& graph);               // error: activities left over (a bug: named)
};

}  // namespace nlsplit
