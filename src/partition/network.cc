#include "partition/network.h"

#include <algorithm>
#include <limits>

namespace nlsplit::inline partition {
namespace {

std::vector<HostId> hosts_that_matter(const Cluster& cluster, HostId source, HostId sink,
                                      const std::vector<DeviceId>& devices) {
  std::vector<HostId> hosts = {source, sink};
  for (const DeviceId device : devices) hosts.push_back(cluster.device(device).host);
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

bool alike(const Cluster& cluster, const std::vector<std::vector<double>>& node_seconds, size_t a, size_t b) {
  const Device &x = cluster.devices[a], &y = cluster.devices[b];
  return x.kind == y.kind && x.memory == y.memory && x.level == y.level && x.machine == y.machine &&
         node_seconds[a] == node_seconds[b];
}

// Is the network the same after the hosts of two devices have changed places? Links may be exchanged too, one for one.
class Exchange {
 public:
  Exchange(const Cluster& cluster, const Network& network) : cluster_(cluster), network_(network) {}

  bool changes_nothing(const std::vector<HostId>& hosts, HostId a, HostId b) {
    image_.assign(network_.lane_seconds_per_byte.size(), no_lane);
    origin_ = image_;
    const auto swapped = [&](HostId host) { return host == a ? b : host == b ? a : host; };
    for (const HostId from : hosts) {
      for (const HostId to : hosts) {
        if (!same(network_.path(from, to), network_.path(swapped(from), swapped(to)))) return false;
      }
    }
    return true;
  }

 private:
  static constexpr uint32_t no_lane = std::numeric_limits<uint32_t>::max();

  bool same(const Path& before, const Path& after) {
    if (before.exists != after.exists || before.lanes.size() != after.lanes.size() || before.latency != after.latency ||
        before.seconds_per_byte != after.seconds_per_byte)
      return false;
    for (size_t i = 0; i < before.lanes.size(); ++i) {
      const uint32_t x = before.lanes[i], y = after.lanes[i];
      if (network_.lane_seconds_per_byte[x] != network_.lane_seconds_per_byte[y]) return false;
      if (cluster_.links[x / 2].full_duplex != cluster_.links[y / 2].full_duplex) return false;
      if ((image_[x] != no_lane && image_[x] != y) || (origin_[y] != no_lane && origin_[y] != x)) return false;
      image_[x] = y;
      origin_[y] = x;
    }
    return true;
  }

  const Cluster& cluster_;
  const Network& network_;
  std::vector<uint32_t> image_, origin_;  // [lane]
};

}  // namespace

Network make_network(const Cluster& cluster, HostId source, HostId sink, const std::vector<DeviceId>& devices) {
  Network network;
  network.hosts = hosts_that_matter(cluster, source, sink, devices);
  network.number.assign(cluster.hosts.size(), std::numeric_limits<uint32_t>::max());
  for (size_t h = 0; h < network.hosts.size(); ++h) network.number[network.hosts[h].index()] = static_cast<uint32_t>(h);
  network.paths.reserve(network.hosts.size() * network.hosts.size());
  network.lane_seconds_per_byte.assign(cluster.links.size() * 2, 0);
  for (const HostId from : network.hosts) {
    for (const HostId to : network.hosts) {
      Path& path = network.paths.emplace_back();
      const auto route = find_path(cluster, from, to);
      if (!route.ok()) continue;
      path.exists = true;
      // By the links, not by what was measured between two hosts: measurements differ where machines do not, and
      // machines that do not differ are tried once.
      path.latency = route->eager.latency.value();
      path.seconds_per_byte = 1 / route->narrowest.value();
      for (const Hop& hop : route->hops) {
        if (!cluster.links[hop.link.index()].shared) continue;  // messages on it do not hinder each other
        const auto lane = static_cast<uint32_t>(lane_of(cluster, hop));
        path.lanes.push_back(lane);
        network.lane_seconds_per_byte[lane] = 1 / cluster.links[hop.link.index()].bandwidth.value();
      }
    }
  }
  return network;
}

Network make_network(const Cluster& cluster, HostId source, HostId sink) {
  std::vector<DeviceId> devices;
  for (size_t d = 0; d < cluster.devices.size(); ++d) devices.push_back(DeviceId(d));
  return make_network(cluster, source, sink, devices);
}

std::vector<size_t> interchangeable_devices(const Cluster& cluster, HostId source, HostId sink, const Network& network,
                                            const std::vector<std::vector<double>>& node_seconds) {
  const auto known = [&](HostId host) { return network.number[host.index()] < network.hosts.size(); };
  std::vector<int> devices_on(cluster.hosts.size(), 0);
  for (const Device& device : cluster.devices) ++devices_on[device.host.index()];
  Exchange exchange(cluster, network);
  std::vector<size_t> class_of;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    size_t found = d;
    if (!known(cluster.devices[d].host)) {
      class_of.push_back(d);
      continue;
    }
    for (size_t e = 0; e < d && found == d; ++e) {
      if (class_of[e] != e || !known(cluster.devices[e].host) || !alike(cluster, node_seconds, d, e)) continue;
      const HostId x = cluster.devices[e].host, y = cluster.devices[d].host;
      const auto stays = [&](HostId host) { return host == source || host == sink || devices_on[host.index()] > 1; };
      // Devices of one host have the same routes to all others. A host with other devices on it cannot change places
      // alone.
      if (x == y || (!stays(x) && !stays(y) && exchange.changes_nothing(network.hosts, x, y))) found = e;
    }
    class_of.push_back(found);
  }
  return class_of;
}

}  // namespace nlsplit::inline partition
