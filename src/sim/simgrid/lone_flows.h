// LoneFlows: which messages share none of their links with another message. Such a message takes its `duration`
// (sim/timed_graph.h), and no rate has to be computed.
//
//   if (flows.begin(i, joined)) …       // alone: over after its duration, unless another message joins it
//   else for (uint32_t other : joined)  // these were alone until now
//   flows.end(i);
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

class LoneFlows {
 public:
  // `unsteady`: links whose bandwidth changes; who uses one is never alone.
  LoneFlows(const TimedGraph& graph, const Cluster& cluster, const std::vector<LinkId>& unsteady);

  // The message begins to move. True: it is alone. Else appends to `joined` the messages on its route that were alone.
  bool begin(uint32_t activity, std::vector<uint32_t>& joined);
  void end(uint32_t activity);

 private:
  static constexpr uint32_t nobody = UINT32_MAX;
  struct Way {
    std::vector<uint32_t> lanes;  // that messages share
    bool steady = true;           // and each but once
  };
  struct Lane {
    uint32_t moving = 0;
    uint32_t alone = nobody;
  };
  const Way& way_of(uint32_t activity) const { return ways_[static_cast<size_t>(graph_.activities[activity].route)]; }

  const TimedGraph& graph_;
  std::vector<Way> ways_;  // by route
  std::vector<Lane> lanes_;
};

}  // namespace nlsplit::inline sim
