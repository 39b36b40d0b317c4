#include "cost/same_costs.h"

namespace nlsplit {

DeviceId first_with_costs_of(DeviceId device, const Cluster& cluster, const CostTable& costs) {
  const auto* roofline = std::get_if<Roofline>(&costs.source(device));
  for (size_t d = 0; roofline != nullptr && d < device.index(); ++d) {
    const auto* other = std::get_if<Roofline>(&costs.source(DeviceId(d)));
    if (other != nullptr && *other == *roofline && cluster.devices[d].isa == cluster.device(device).isa)
      return DeviceId(d);
  }
  return device;
}

}  // namespace nlsplit
