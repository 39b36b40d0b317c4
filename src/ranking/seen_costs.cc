#include "ranking/seen_costs.h"

#include <algorithm>
#include <set>

namespace nlsplit::inline ranking {
namespace {

void count_cost(DeviceId device, const ComputeDesc& desc, const CostTable& costs, SeenCosts& seen) {
  if (desc.kernel.empty()) return;
  if (const auto cost = costs.cost(device, desc)) seen.emplace(std::pair(signature(desc), cost->origin), cost->spread);
}

}  // namespace

void count_costs_of(const Program& program, const Cluster& cluster, const CostTable& costs, SeenCosts& seen) {
  std::set<std::pair<DeviceId, int>> counted;  // with a device's costs, a computation
  for (const DeviceProgram& device : program.devices) {
    const DeviceId id = cluster.find_device(device.name);
    if (device.kind == DeviceKind::host || !id.valid()) continue;
    const DeviceId first = first_with_costs_of(id, cluster, costs);
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute || !counted.emplace(first, instr.desc).second) continue;
        count_cost(id, program.descs[static_cast<size_t>(instr.desc)], costs, seen);
      }
    }
  }
}

CostCounts count_costs(const RankContext& context, SeenCosts seen) {
  const Cluster& cluster = context.scenario.cluster;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceId device(d);
    if (first_with_costs_of(device, cluster, context.costs) != device) continue;
    const Level level = cluster.device(device).level;
    for (const PreparedModel& prepared : context.prepared) {
      const KernelGraph& all = prepared.kernels.training ? prepared.kernels.training->step : prepared.kernels;
      const std::vector<ComputeDesc>& descs = all.chosen.at(level).descs;
      const std::vector<NodeKernel>& kernels = all.kernels.at(level);
      for (size_t n = 0; n < descs.size(); ++n) {
        if (kernels[n].same_as == n) count_cost(device, descs[n], context.costs, seen);
      }
    }
  }
  CostCounts counts;
  for (const auto& [what, spread] : seen) {
    switch (what.second) {
      case CostOrigin::measured:
        ++counts.measured;
        break;
      case CostOrigin::predicted:
        ++counts.predicted;
        counts.largest_spread = std::max(counts.largest_spread, spread);
        break;
      case CostOrigin::formula:
        ++counts.estimated;
        break;
    }
  }
  return counts;
}

}  // namespace nlsplit::inline ranking
