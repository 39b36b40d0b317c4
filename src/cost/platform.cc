#include "cost/platform.h"

namespace nlsplit::inline cost {

void add_platform(Cluster& cluster, const Platform& platform, const std::vector<HostId>& hosts) {
  CHECK(cluster.links.empty(), "a platform goes into a cluster without links");
  CHECK(platform.route_begin.size() == hosts.size() * hosts.size() + 1, "the routes of other hosts");
  GivenRoutes routes{hosts.size(), platform.route_begin, {}};
  // A SimGrid link has one bandwidth for both ways; a split-duplex one is two links.
  for (const Platform::Link& link : platform.links)
    cluster.links.push_back({link.name, HostId(), HostId(), link.bandwidth, link.latency, false, link.shared});
  for (const uint32_t link : platform.route_links) {
    CHECK(link < cluster.links.size(), "a route over a link that is not there");
    routes.links.push_back(LinkId(link));
  }
  for (size_t i = 0; i < hosts.size(); ++i) cluster.hosts[hosts[i].index()].number = static_cast<int>(i);
  cluster.fabric = std::move(routes);
  cluster.fabric_links = cluster.links.size();
}

}  // namespace nlsplit::inline cost
