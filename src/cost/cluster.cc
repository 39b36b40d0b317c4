#include "cost/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace nlsplit::inline cost {

namespace {

// Which hosts are connected, whatever the way.
class Islands {
 public:
  explicit Islands(const Cluster& cluster) : parent_(cluster.hosts.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    for (const Link& link : cluster.links) {
      if (link.a.valid()) parent_[root(link.a.index())] = root(link.b.index());
    }
    // A fabric joins all its hosts; its links may have no ends.
    size_t first = parent_.size();
    for (size_t h = 0; h < parent_.size(); ++h) {
      if (cluster.hosts[h].number < 0) continue;
      if (first == parent_.size()) first = h;
      parent_[root(h)] = root(first);
    }
  }
  size_t root(size_t host) {
    while (parent_[host] != host) host = parent_[host] = parent_[parent_[host]];
    return host;
  }

 private:
  std::vector<size_t> parent_;
};

}  // namespace

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::host:
      return "host";
  }
  CHECK(false, "a device kind without a name");
}

Result<DeviceKind> parse_device_kind(std::string_view text) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::host}) {
    if (name_of(kind) == text) return kind;
  }
  return invalid_input(fmt::format("unknown device kind '{}'; 'cpu' and 'cuda' are supported", text));
}

DeviceId Cluster::find_device(std::string_view name) const {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].name == name) return DeviceId(i);
  }
  return DeviceId();
}

HostId Cluster::find_host(std::string_view name) const {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == name) return HostId(i);
  }
  return HostId();
}

Status check_connected(const Cluster& cluster, const std::vector<HostId>& hosts) {
  if (hosts.empty()) return ok_status();
  Islands islands(cluster);
  const size_t island = islands.root(hosts.front().index());
  for (const HostId host : hosts) {
    if (islands.root(host.index()) == island) continue;
    return invalid_input(fmt::format("no links connect host '{}' with host '{}'",
                                     cluster.hosts[hosts.front().index()].name, cluster.hosts[host.index()].name));
  }
  return ok_status();
}

size_t lane_of(const Cluster& cluster, const Hop& hop) {
  return hop.link.index() * 2 + (cluster.links[hop.link.index()].full_duplex && !hop.forward ? 1 : 0);
}

std::string name_of(const Cluster& cluster, const Hop& hop) {
  const Link& link = cluster.links[hop.link.index()];
  if (!link.a.valid()) return link.name;
  const std::string &a = cluster.hosts[link.a.index()].name, &b = cluster.hosts[link.b.index()].name;
  if (!link.full_duplex || link.a == link.b) return fmt::format("{}-{}", a, b);
  return hop.forward ? fmt::format("{}>{}", a, b) : fmt::format("{}>{}", b, a);
}

}  // namespace nlsplit::inline cost
