// A lower bound of a batch's time over all plans of stages and replicas, and of splits inside layers if asked for. The
// bound is proved, not searched. So a ranking can say how much better than its first plan any other plan could be, also
// one that the search did not try.
//
// Three bounds, of which the largest holds:
//  - Load. Each node of each micro-batch is computed somewhere, and a device computes one at a time. For any weights
//    w >= 0 of the devices the makespan is at least M * sum over nodes of min over devices (w_d * seconds_dn), divided
//    by the sum of the weights of the devices that a plan may have: the dual of the fractional assignment of nodes to
//    unrelated machines (Lenstra, Shmoys, Tardos, Mathematical Programming 46, 1990). The best weights are looked for;
//    any are sound.
//  - Links. Data of layers on other hosts must cross the links of the host that has the inputs, or of the host where
//    the outputs are wanted: ranking/border_bound.h. Not with splits inside layers, which send other bytes.
//  - Path. A micro-batch passes every path of the graph, each node in no less than its time on the fastest device.
// Other messages, memory, and the filling and draining of a pipeline are left out: they only make plans slower.
#pragma once

#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

struct LowerBound {
  double makespan_s = 0;  // of a batch; in training of a step
  double latency_s = 0;   // of one micro-batch
};

// At one micro-batch count. most_devices: of one plan; 0: all. inside: layers may be split, so that all devices share a
// node. The bound then holds only if the pieces of a layer together take at least the layer's time: true of rooflines,
// not always of measurements. enough_s: stops at a bound of this makespan. Error: a missing cost.
Result<LowerBound> lower_bound(const PreparedModel& prepared, const Cluster& cluster, const CostTable& costs,
                               const Endpoints& ends, size_t most_devices, bool inside, double enough_s,
                               size_t cores = 1);

// The load bound alone: seconds_of[device][node] of one micro-batch, as described above. For tests.
double load_bound(const std::vector<std::vector<double>>& seconds_of, size_t most_devices);

}  // namespace nlsplit::inline ranking
