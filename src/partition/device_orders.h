// Orders in which a pipeline may go over the devices of a cluster. A search that tries all of them can do so for some
// eight devices; of more it tries these.
#pragma once

#include <vector>

#include "partition/network.h"

namespace nlsplit::inline partition {

// Of `devices`, which come fastest first: as they come; as the cluster lists them; from neighbour to neighbour,
// starting at the source, each next one where a message of `bytes` arrives first (of equals the faster one); and the
// same among those only that are at least half as fast as the fastest, the others behind. No two of the answer are the
// same. seconds: [device]: of the whole model.
std::vector<std::vector<DeviceId>> device_orders(const Cluster& cluster, const Network& network, HostId source,
                                                 const std::vector<DeviceId>& devices,
                                                 const std::vector<double>& seconds, double bytes);

}  // namespace nlsplit::inline partition
