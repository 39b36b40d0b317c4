// The fast tier: no contention between messages. It selects plans; SimGrid's times rank the selected ones.
#pragma once

#include <utility>
#include <vector>

#include "sim/tier.h"

namespace nlsplit::inline sim {

// Links other than the scenario's.
struct ScaledLinks {
  double bandwidth = 1;   // of every link, relative to the scenario's
  double latency = 1;     // and handshakes
  bool overheads = true;  // whether messages take time from what their ends compute, and computing from messages
};

// Queues at network cards and contention between devices of one machine are as in the SimGrid tier. If an online policy
// leaves every device waiting the makespan is infinite. Reuses the vectors of `timing`. A longest-path sweep if
// is_closed(), else an event loop: both give the same times.
void simulate_fast(const TimedGraph& graph, Timing& timing, const ScaledLinks& links = {});
// As a Tier. Its makespan is also no shorter than what the busiest link or device must do.
const Tier& fast_tier();

// Whether an activity's times depend only on the activities that it waits for, and not on others that run at the same
// time. False with a card window, contention between devices of one machine, stragglers, online decisions,
// clear-to-send delays, messages that their senders queue, overheads of messages, or messages that are slower while
// their ends compute.
bool is_closed(const TimedGraph& graph);
// The event loop, whatever the graph: tests compare the sweep with it.
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
