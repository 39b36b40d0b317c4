// CostTable: how long each computation takes on each device of a cluster, by the devices' cost sources. Never guessed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/cost_source.h"

namespace nlsplit::inline cost {

class CostTable {
 public:
  // One source for each device of the cluster, in its order.
  CostTable(std::vector<CostSourcePtr> sources, CostNames names);
  CostTable(std::vector<CostSourcePtr> sources, std::string scenario);  // devices then go by their number in messages

  // Error: the device's source does not know; CostSource::cost.
  Result<Cost> cost(DeviceId device, const ComputeDesc& desc, std::string_view layer = {},
                    ScalarValues scalars = {}) const;
  KernelPreference preference() const { return fastest_measured(sources_); }
  const CostSource& source(DeviceId device) const { return *sources_[device.index()]; }

 private:
  std::vector<CostSourcePtr> sources_;
  CostNames names_;
};

// Whether every computation takes equally long on both, for certain: they have the same kernels, cores and costs.
bool same_costs(DeviceId a, DeviceId b, const Cluster& cluster, const CostTable& costs);

// The first device of the cluster that has the same costs as this one: the only one to ask. Itself if there is none
// before it.
DeviceId first_with_costs_of(DeviceId device, const Cluster& cluster, const CostTable& costs);

}  // namespace nlsplit::inline cost
