// The SimGrid tier: the same activities over shared links (max-min fair), as SimGrid moves them.
//
//   ASSIGN_OR_RETURN(std::vector<Timing> timings, simulate_all(simgrid_tier(), cluster, {&graph_a, &graph_b}));
//
// B bytes alone on a route take B/bandwidth + latency exactly: network model CM02 without its TCP corrections, links
// without latency of their own (SimGrid would weigh its sharing by it); the latency is waited after the last byte.
// SimGrid gets only messages that share links: a message that is alone on its route is handed over when another one
// joins it.
#pragma once

#include "sim/tier.h"

namespace nlsplit::inline sim {

// A graph runs in this process, on all cores at once, by FairFlows, which has the same bits as SimGrid
// (sim/simgrid/fair_flows.h). Where FairFlows does not apply, as with links that change their bandwidth, SimGrid itself
// runs the graph, in a child process with a fresh engine: SimGrid allows one engine a process and cannot undo it, the
// last bits of its fluid model depend on earlier simulations, and it aborts on errors. So clusters may follow in any
// order, the same graph always gives the same bits, and a crash is an error with the child's last words. There are as
// many children at a time as cores. A child takes about 1 ms beside the simulation and the fork (which takes longer the
// more pages this process has). `disturb` may run in a child or on another thread, and twice. Buffered C streams are
// flushed first. The caller must have no threads. Errors: SimGrid refused the platform, died, or left activities over;
// the system gave no child or no memory.
const Tier& simgrid_tier();

}  // namespace nlsplit::inline sim
