// Breakdown: what each device did with the makespan, and how full each link was.
//
//   const Breakdown breakdown = break_down(graph, timing, cluster);
//   breakdown.devices[0]: computing 80 ms, exposed communication 5 ms, waiting 15 ms       // makespan 100 ms
//
// The three parts of a device add up to the makespan:
//   computing               its compute stream runs a block, with what company, messages and noise make it longer
//   exposed communication   it is idle, and what it waits for is a message under way: communication that no computing
//                           hides (as in ASTRA-sim: Rashidi et al., ISPASS 2020)
//   waiting                 it is idle for any other reason: its input is not computed yet, a buffer downstream is
//                           full, nothing is left to do; with equal stages the bubble of the pipeline (Huang et al.,
//                           "GPipe", NeurIPS 2019)
// An idle device waits for the last input of its next block. If that is a message, communication is exposed from when
// the message could move (its data written and, if it is not eager, its receiver ready) until it arrives. If another
// message delayed it (the previous one of its FIFO, or one that had to leave a buffer), the time of that message is
// exposed too, and so on along the chain. The chain ends at a computation: before that ended, the device waited for
// computing and not for the network. After its last block a device waits for the last of its own messages, then for the
// other devices to end.
#pragma once

#include <vector>

#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

struct DeviceBreakdown {  // seconds
  double computing = 0;
  double exposed_communication = 0;
  double waiting = 0;
};

struct LinkUse {
  Hop hop;                 // forward for both directions of a half-duplex link, which share it
  double bytes = 0;        // it carried
  double utilisation = 0;  // bytes / (bandwidth x makespan)
  double busy = 0;         // share of the makespan in which at least one message moved over it
};

struct Breakdown {
  std::vector<DeviceBreakdown> devices;  // by device of the Program
  std::vector<LinkUse> links;            // that carried something, in the cluster's order
};

// `timing` is of `graph`, by either tier.
// Links on which messages do not meet (Link::shared) have no utilisation and are left out.
Breakdown break_down(const TimedGraph& graph, const Timing& timing, const Cluster& cluster);

}  // namespace nlsplit::inline sim
