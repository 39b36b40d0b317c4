// The SimGrid tier: the same activities over shared links (max-min fair), as SimGrid moves them.
//
//   ASSIGN_OR_RETURN(std::vector<Timing> timings, simulate_all(simgrid_tier(), cluster, {&graph_a, &graph_b}));
//
// B bytes alone on a route take B/bandwidth + latency exactly: network model CM02 without its TCP corrections, links
// without latency of their own (SimGrid would weigh its sharing by it); the latency is waited after the last byte.
// What nobody shares SimGrid does not get: a message that has its way to itself is handed over when another one
// joins it.
#pragma once

#include "sim/tier.h"

namespace nlsplit::inline sim {

// A graph is run in this process, on all cores at once, by what has SimGrid's bits without SimGrid
// (sim/simgrid/fair_flows.h). Where that cannot be, as with links that change their bandwidth, it is run by SimGrid
// itself, in a child process of its own with a fresh engine: SimGrid allows one engine a process and cannot undo it,
// its fluid model's last bits depend on what ran before, and it aborts on trouble. So any cluster may follow any other,
// the same graph always gives the same bits, and a crash is an error with the child's last words. As many children at a
// time as there are cores, about 1 ms each beyond the simulation itself and what a fork takes (the more pages this
// process has, the longer); disturbances may happen in a child or on another thread, and twice. Buffered C streams are
// flushed first. The caller must have no threads. Errors: SimGrid refused the platform, died, or left activities over;
// the system gave no child or no memory.
const Tier& simgrid_tier();

}  // namespace nlsplit::inline sim
