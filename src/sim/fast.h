// The fast tier: no contention, every transfer has its route to itself. Prunes; SimGrid judges.
#pragma once

#include <utility>
#include <vector>

#include "sim/tier.h"

namespace nlsplit::inline sim {

// Links other than the scenario's.
struct ScaledLinks {
  double bandwidth = 1;  // of every link, times today's
  double latency = 1;    // and handshakes
};

// Messages of one host take turns at its card and blocks have company as in the SimGrid tier; if online decisions leave
// every device waiting the makespan is infinite. Reuses the vectors of `timing`. One longest-path sweep where
// is_closed(), else an event loop: both give the same times.
void simulate_fast(const TimedGraph& graph, Timing& timing, const ScaledLinks& links = {});
// As a Tier. Its makespan is also no shorter than what the busiest link or device must do.
const Tier& fast_tier();

// Whether no activity's time depends on what else is under way when it runs: an activity's times then follow from those
// it waits for. Not so with a card window, devices of one machine that slow each other down, stragglers, online
// decisions, answers that wait, overheads of messages, or messages that are slower while their ends compute.
bool is_closed(const TimedGraph& graph);
// The event loop whatever the graph: what the sweep is held against.
void simulate_by_events(const TimedGraph& graph, Timing& timing);
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

}  // namespace nlsplit::inline sim
