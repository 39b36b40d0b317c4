#include "partition/device_orders.h"

#include <algorithm>

namespace nlsplit::inline partition {
namespace {

// Appends `devices` from neighbour to neighbour.
void add_neighbours(const Cluster& cluster, const Network& network, double bytes, HostId at,
                    std::vector<DeviceId> devices, std::vector<DeviceId>& order) {
  while (!devices.empty()) {
    const auto distance = [&](DeviceId device) {
      if (cluster.device(device).host == at) return 0.0;
      const Path& path = network.path(at, cluster.device(device).host);
      return path.exists ? path.latency + bytes * path.seconds_per_byte : never;
    };
    // The first of the nearest: the fastest of them.
    const auto next = std::ranges::min_element(devices, {}, distance);
    at = cluster.device(*next).host;
    order.push_back(*next);
    devices.erase(next);
  }
}

}  // namespace

std::vector<std::vector<DeviceId>> device_orders(const Cluster& cluster, const Network& network, HostId source,
                                                 const std::vector<DeviceId>& devices,
                                                 const std::vector<double>& seconds, double bytes) {
  std::vector<std::vector<DeviceId>> orders = {devices};
  const auto add = [&](std::vector<DeviceId> order) {
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(std::move(order));
  };
  std::vector<DeviceId> listed = devices;
  std::ranges::sort(listed);
  add(std::move(listed));
  std::vector<DeviceId> near;
  add_neighbours(cluster, network, bytes, source, devices, near);
  add(std::move(near));
  const double fast = 2 * seconds[devices.front().index()];
  const auto slow = std::ranges::find_if(devices, [&](DeviceId d) { return seconds[d.index()] > fast; });
  std::vector<DeviceId> fast_first;
  add_neighbours(cluster, network, bytes, source, {devices.begin(), slow}, fast_first);
  const HostId last = cluster.device(fast_first.back()).host;
  add_neighbours(cluster, network, bytes, last, {slow, devices.end()}, fast_first);
  add(std::move(fast_first));
  return orders;
}

}  // namespace nlsplit::inline partition
