#include "cost/cost_table.h"

namespace nlsplit::inline cost {

CostTable::CostTable(std::vector<CostSourcePtr> sources, CostNames names)
    : sources_(std::move(sources)), names_(std::move(names)) {
  CHECK(names_.devices.empty() || names_.devices.size() == sources_.size(), "as many names as sources");
  CHECK(names_.cores.empty() || names_.cores.size() == sources_.size(), "as many numbers of cores as sources");
}

CostTable::CostTable(std::vector<CostSourcePtr> sources, std::string scenario)
    : CostTable(std::move(sources), CostNames{std::move(scenario), {}, {}}) {}

Result<Cost> CostTable::cost(DeviceId device, const ComputeDesc& desc, std::string_view layer,
                             ScalarValues scalars) const {
  CHECK(device.valid() && device.index() < sources_.size(), "cost on an unknown device");
  return source(device).cost({desc, device, names_, layer, scalars});
}

bool same_costs(DeviceId a, DeviceId b, const Cluster& cluster, const CostTable& costs) {
  return cluster.device(a).level == cluster.device(b).level && cluster.device(a).cores == cluster.device(b).cores &&
         costs.source(a).same_as(costs.source(b));
}

DeviceId first_with_costs_of(DeviceId device, const Cluster& cluster, const CostTable& costs) {
  for (size_t d = 0; d < device.index(); ++d) {
    if (same_costs(DeviceId(d), device, cluster, costs)) return DeviceId(d);
  }
  return device;
}

}  // namespace nlsplit::inline cost
