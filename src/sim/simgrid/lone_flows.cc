#include "sim/simgrid/lone_flows.h"

#include <algorithm>

namespace nlsplit::inline sim {

LoneFlows::LoneFlows(const TimedGraph& graph, const Cluster& cluster, const std::vector<LinkId>& unsteady)
    : graph_(graph), lanes_(cluster.links.size() * 2) {
  ways_.reserve(graph.routes.size());
  for (const auto& route : graph.routes) {
    Way& way = ways_.emplace_back();
    for (const Hop& hop : route.hops) {
      way.steady = way.steady && std::ranges::find(unsteady, hop.link) == unsteady.end();
      if (!cluster.links[hop.link.index()].shared) continue;
      const auto lane = static_cast<uint32_t>(lane_of(cluster, hop));
      way.steady = way.steady && std::ranges::find(way.lanes, lane) == way.lanes.end();
      way.lanes.push_back(lane);
    }
  }
}

bool LoneFlows::begin(uint32_t activity, std::vector<uint32_t>& joined) {
  const Way& way = way_of(activity);
  bool alone = way.steady;
  for (const uint32_t at : way.lanes) {
    Lane& lane = lanes_[at];
    alone = alone && lane.moving == 0;
    ++lane.moving;
    if (lane.alone == nobody) continue;
    // Until now it was alone on all its lanes; it comes up once.
    joined.push_back(lane.alone);
    for (const uint32_t its : way_of(lane.alone).lanes) {
      if (its != at) lanes_[its].alone = nobody;
    }
    lane.alone = nobody;
  }
  if (alone) {
    for (const uint32_t at : way.lanes) lanes_[at].alone = activity;
  }
  return alone;
}

void LoneFlows::end(uint32_t activity) {
  for (const uint32_t at : way_of(activity).lanes) {
    --lanes_[at].moving;
    if (lanes_[at].alone == activity) lanes_[at].alone = nobody;
  }
}

}  // namespace nlsplit::inline sim
