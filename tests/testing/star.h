// The cluster of tests of lowering.
#pragma once

#include <string>

#include "cost/cluster.h"

namespace nlsplit {

// Devices A, B, … on hosts a, b, … around a switch.
inline Cluster star(size_t devices, Bytes memory = bytes(int64_t{1} << 33)) {
  Cluster cluster;
  for (size_t i = 0; i < devices; ++i) {
    cluster.hosts.push_back({std::string(1, static_cast<char>('a' + i)), false});
    cluster.devices.push_back(
        {std::string(1, static_cast<char>('A' + i)), HostId(i), DeviceKind::cpu, memory, Isa::v3});
  }
  cluster.hosts.push_back({"sw", true});
  for (size_t i = 0; i < devices; ++i) {
    cluster.links.push_back({"", HostId(i), HostId(devices), bytes_per_second(125e6), seconds(1e-4), true});
  }
  return cluster;
}

}  // namespace nlsplit
