// Routes of a cluster for the search, looked up once. Each link direction has a number, its lane; transfers share
// lanes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline partition {

inline constexpr double never = std::numeric_limits<double>::infinity();  // seconds of what cannot be done

struct Path {
  bool exists = false;
  std::vector<uint32_t> lanes;  // 2 * link + direction; a half-duplex link has one lane
  double latency = 0;           // seconds
  double seconds_per_byte = 0;  // of the slowest lane
};

struct Network {
  std::vector<HostId> hosts;                  // that matter, ascending
  std::vector<uint32_t> number;               // [host]: its place among them
  std::vector<Path> paths;                    // [number of from * hosts + number of to]
  std::vector<double> lane_seconds_per_byte;  // 0: no such lane

  const Path& path(HostId from, HostId to) const {
    return paths[number[from.index()] * hosts.size() + number[to.index()]];
  }
};

// Between the hosts of these devices, the source and the sink.
Network make_network(const Cluster& cluster, HostId source, HostId sink, const std::vector<DeviceId>& devices);
Network make_network(const Cluster& cluster, HostId source, HostId sink);  // of all devices

// Classes of interchangeable devices: exchanging two devices of a class changes no time, no memory and no route, except
// for the names of links. class_of[device]: the lowest-numbered device of its class; of devices outside of the network
// the device itself. node_seconds: [device][node].
std::vector<size_t> interchangeable_devices(const Cluster& cluster, HostId source, HostId sink, const Network& network,
                                            const std::vector<std::vector<double>>& node_seconds);

}  // namespace nlsplit::inline partition
