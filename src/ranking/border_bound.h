// A lower bound by the links at one host: data of layers computed beyond these links must cross them, and layers
// computed on the host take its time.
//
// Each micro-batch puts every node of the graph on the host or beyond. For weights w >= 0 of the devices and u >= 0 of
// the host's links the makespan is at least
//   min over all partitions of the nodes of  sum of w_d * seconds_dn on the cheapest device of the node's side
//                                          + u * seconds of the bytes that cross the border
// divided by the sum of the weights of the devices that a plan may have, and of u: Lagrangian duality, as in
// ranking/lower_bound.h. The minimum is a minimum cut of the graph (Stone, "Multiprocessor Scheduling with the Aid of
// Network Flow Algorithms", IEEE Trans. Softw. Eng. 3, 1977). Any weights are sound; good ones are looked for.
#pragma once

#include <vector>

#include "cost/cluster.h"
#include "graph/graph.h"

namespace nlsplit::inline ranking {

// The links of one host.
struct Border {
  std::vector<bool> inside;  // [device]: on the host
  bool source_inside = false, sink_inside = false;
  double out_s_per_byte = 0, in_s_per_byte = 0;  // that its links are busy with, at least; 0: free
  bool both_ways = false;                        // they carry what leaves and what comes one after the other
};
Border border_of(const Cluster& cluster, HostId host, HostId source, HostId sink);

// Of a whole batch.
struct BorderProblem {
  const Graph* graph = nullptr;
  std::vector<std::vector<double>> seconds;  // [device][node]
  std::vector<double> value_bytes;           // [value]: sent where it crosses; 0: never sent
  std::vector<bool> sends;                   // [node]: what it reads and makes is sent; else it is where it is cheapest
  bool outputs_are_sent = true;              // to where they are wanted
  size_t most_devices = 0;                   // of one plan; 0: all
};

// Seconds. `enough`: no larger one is looked for.
double border_bound(const BorderProblem& problem, const Border& border, double enough, size_t cores = 1);

}  // namespace nlsplit::inline ranking
