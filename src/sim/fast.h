// The fast tier: no contention, every transfer has its route to itself. Prunes; SimGrid judges.
#pragma once

#include <utility>
#include <vector>

#include "sim/timed_graph.h"

namespace nlsplit {

// One longest-path sweep; with nic_window > 0, or devices that slow each other down, an event loop, in which messages
// of one host take turns and blocks have company as in the SimGrid tier; so too with online decisions, and if these
// leave every device waiting the makespan is infinite. Reuses the vectors of `timing`.
void simulate_fast(const TimedGraph& graph, Timing& timing);
// The same for a graph with online decisions. Error: the policy left every device waiting.
Status simulate_online(const TimedGraph& graph, Timing& timing);

// Utilisation and bounds that hold with contention too: seconds each link direction and each device must be busy.
struct Load {
  std::vector<double> device_seconds;  // by device of the Program
  std::vector<std::pair<Hop, double>>
      link_seconds;        // links that are used; half-duplex ones have both directions summed (forward)
  double busiest() const;  // no execution is shorter
};
Load load_of(const TimedGraph& graph, const Cluster& cluster, size_t devices);

}  // namespace nlsplit
