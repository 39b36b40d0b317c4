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
// What an idle device waits for is what it meets last of all its next block needs. If that is a message, the time from
// when it could move (its data written, and, if it is not eager, its receiver ready) until it is there is exposed; and
// if what kept it from moving earlier was another message (the one before it in its FIFO, one that had to leave a
// buffer), that one's time too, and so on; but never beyond a computation: before that ended, the device waits for a
// computer and not for the network. After its last block a device waits for the last of its own messages, then for the
// others to end.
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
