// The SimGrid tier: the same activities over shared links (max-min fair), with SimGrid's kernel as the clock.
//
//   ASSIGN_OR_RETURN(std::vector<Timing> timings, simulate_all(cluster, {&graph_a, &graph_b}));
//
// B bytes alone on a route take B/bandwidth + latency exactly: network model CM02 without its TCP corrections, links
// without latency of their own (SimGrid would weigh its sharing by it); the latency is waited after the last byte.
// What nobody shares is not asked of SimGrid: a message that has its way to itself is handed over when another one
// joins it.
#pragma once

#include <functional>
#include <vector>

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit {

// Each graph in a child process of its own, with a fresh engine: SimGrid allows one engine a process and cannot undo
// it, its fluid model's last bits depend on what ran before, and it aborts on trouble. So any cluster may follow any
// other, the same graph always gives the same bits, and a crash is an error with the child's last words. As many
// children at a time as there are cores, about 1 ms each beyond the simulation itself. Buffered C streams are flushed
// first. The caller must have no threads. `cluster` is the one the graphs were built for. Errors name the first graph
// that failed: SimGrid refused the platform, died, or left activities over; the system gave no child or no memory.
Result<std::vector<Timing>> simulate_all(const Cluster& cluster, const std::vector<const TimedGraph*>& graphs);

// The same for many, one after the other: what is not needed any more is not kept.
struct Simulation {
  const TimedGraph* graph = nullptr;
  std::function<void(TimedGraph&)> disturb = {};  // what to do to a copy of it beforehand, in the child; may be empty
};
// Asks for simulations 0 … count-1 when their turn comes, and gives each timing to `take`, in this order, as soon as it
// is there. `take` answers whether to go on; if not, those under way are waited for and forgotten.
Status simulate_each(const Cluster& cluster, size_t count, const std::function<Simulation(size_t)>& simulation,
                     const std::function<bool(size_t, Timing)>& take);

}  // namespace nlsplit
