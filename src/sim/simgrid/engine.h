// One simulation in this process, which must not have had one before: simulate_all calls this in its children.
#pragma once

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

Status run_engine(const TimedGraph& graph, const Cluster& cluster, Timing& timing);

}  // namespace nlsplit::inline sim
