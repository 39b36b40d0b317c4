// The bottleneck bound of a plan: the busiest device or link direction, plus the time to fill and drain around it.
#pragma once

#include <vector>

#include "partition/network.h"
#include "partition/search.h"

namespace nlsplit::inline partition {

// A value that another stage or the sink may need: its bytes in one micro-batch, the node that makes it, the nodes that
// read it.
struct Crossing {
  double bytes = 0;
  int made = -1;             // -1: an input
  std::vector<size_t> read;  // ascending
  bool is_output = false;
};
std::vector<Crossing> find_crossings(const Graph& graph);

// What can be said of a plan without lowering it.
struct Score {
  double bound = 0;    // seconds a batch takes at least
  double latency = 0;  // seconds of one micro-batch that nothing holds up
  double busiest = 0;  // seconds of a batch in which the busiest device computes
};

struct SplitLoad;
using PlanLoads = std::vector<std::vector<SplitLoad>>;  // partition/split_load.h

class Scorer {
 public:
  Scorer(const Cluster& cluster, const Network& network, HostId source, HostId sink, const SearchCosts& costs,
         std::vector<Crossing> crossings);

  // bound: a lower bound of the seconds a batch takes. Infinite: two devices must exchange data, but nothing connects
  // them. A stage that is split inside its layers takes no less than its work shared among its devices as their speeds
  // are; its messages, within and to other stages, are left out. With `loads` (of these stages) they are counted, and
  // each of its devices has its own part of the work.
  Score score(const std::vector<Stage>& stages, const PlanLoads* loads = nullptr) const;
  double bound(const std::vector<Stage>& stages) const { return score(stages).bound; }

  // Seconds of one micro-batch through nodes [begin, end) on a device.
  double seconds(DeviceId device, size_t begin, size_t end) const {
    return prefix_[device.index()][end] - prefix_[device.index()][begin];
  }

 private:
  const Cluster& cluster_;
  const Network& network_;
  HostId source_, sink_;
  const SearchCosts& costs_;
  std::vector<Crossing> crossings_;
  std::vector<std::vector<double>> prefix_;  // [device][node]: of all nodes before
};

// What work takes if machines that take so long for all of it share it fairly: 1 / sum(1 / seconds).
double shared_seconds(const std::vector<double>& seconds);

// How many of `jobs` equal jobs each of these machines gets if each goes to the one that would finish it first.
std::vector<int> share_jobs(int jobs, const std::vector<double>& seconds);

}  // namespace nlsplit::inline partition
