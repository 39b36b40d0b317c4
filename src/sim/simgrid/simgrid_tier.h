// The SimGrid tier: the same activities over shared links (max-min fair), with SimGrid's kernel as the clock.
//
// B bytes alone on a route take B/bandwidth + latency exactly: network model CM02 without its TCP corrections, links without latency of
// their own (SimGrid would weigh its sharing by it); the latency is waited after the last byte.
#pragma once

#include <memory>
#include <vector>

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit {

// Each graph in a child process of its own: SimGrid's engine is one for a process and cannot be undone, its fluid model's last bits
// depend on what ran before, and a crash is contained. As many children at a time as there are cores.
// Errors: a child died or left activities over. The caller must have no threads.
Result<std::vector<Timing>> simulate_all(const Cluster& cluster, const std::vector<const TimedGraph*>& graphs);

// The engine itself, in this process, for benches: at most one ever, for one graph; run() may be repeated.
class SimGridRun {
 public:
  SimGridRun(const Cluster& cluster, const TimedGraph& graph);
  ~SimGridRun();
  Result<Timing> run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nlsplit
