#include <algorithm>

#include "sim/fast.h"

namespace nlsplit::inline sim {

Load load_of(const TimedGraph& graph, const Cluster& cluster, size_t devices) {
  Load load;
  load.device_seconds.assign(devices, 0);
  std::vector<double> route_bytes(graph.routes.size(), 0);
  for (const Activity& activity : graph.activities) {
    if (!activity.is_transfer) {
      load.device_seconds[static_cast<size_t>(activity.device)] += activity.duration;
    } else if (activity.route >= 0) {
      route_bytes[static_cast<size_t>(activity.route)] += activity.bytes;
    }
  }
  std::vector<double> seconds(cluster.links.size() * 2, 0);
  std::vector<bool> used(cluster.links.size() * 2, false);
  for (size_t r = 0; r < graph.routes.size(); ++r) {
    for (const Hop& hop : graph.routes[r].hops) {
      const Link& link = cluster.links[hop.link.index()];
      if (!link.shared) continue;  // never busy
      const size_t at = lane_of(cluster, hop);
      seconds[at] += route_bytes[r] / link.bandwidth.value();
      used[at] = true;
    }
  }
  for (size_t at = 0; at < seconds.size(); ++at) {
    if (used[at]) load.link_seconds.push_back({Hop{LinkId(at / 2), at % 2 == 0}, seconds[at]});
  }
  return load;
}

double Load::busiest() const {
  double most = 0;
  for (const double seconds : device_seconds) most = std::max(most, seconds);
  for (const auto& [hop, seconds] : link_seconds) most = std::max(most, seconds);
  return most;
}

}  // namespace nlsplit::inline sim
