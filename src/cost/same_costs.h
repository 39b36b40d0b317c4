// Devices that need not each be asked what everything costs.
#pragma once

#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace nlsplit {

// The first device of the cluster that has the kernels and the roofline of this one; itself if there is none before it,
// or if it has no roofline.
DeviceId first_with_costs_of(DeviceId device, const Cluster& cluster, const CostTable& costs);

}  // namespace nlsplit
