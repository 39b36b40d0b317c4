// Platform: a network from a SimGrid XML file, as a cluster needs it: hosts, links, and the route between each two of
// the hosts. Another module reads such files, and is passed as PlatformReader: so this module does not depend on
// SimGrid.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline cost {

struct Platform {
  struct Link {
    std::string name;
    BytesPerSecond bandwidth;
    Seconds latency;
    bool shared = true;  // false: FATPIPE
  };
  std::vector<Link> links;
  // From the i-th to the j-th requested host: route_links[route_begin[i * hosts + j] … ), link numbers. Empty
  // only from a host to itself.
  std::vector<size_t> route_begin;
  std::vector<uint32_t> route_links;
};

struct PlatformReader {
  // The names of all its hosts, sorted, numbers in them by their value.
  std::function<Result<std::vector<std::string>>(const std::string& path)> hosts;
  // What lies between these hosts; each is one of those.
  std::function<Result<Platform>(const std::string& path, const std::vector<std::string>& hosts)> routes;
};

// Into a cluster without links. `hosts`: the cluster's hosts that were passed to `routes`, in that order.
void add_platform(Cluster& cluster, const Platform& platform, const std::vector<HostId>& hosts);

}  // namespace nlsplit::inline cost
