#include "ranking/plan_parts.h"

#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "program/data_movement.h"
#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {
namespace {

class PartFinder {
 public:
  PartFinder(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs)
      : lowered_(lowered), cluster_(cluster), costs_(costs) {}

  PlanParts run() {
    parts_.micro_batches = micro_batches_of(lowered_);
    parts_.micro_batch_count = lowered_.program.micro_batches;
    parts_.route_names.resize(lowered_.timed.routes.size());
    for (const Activity& activity : lowered_.timed.activities) {
      parts_.kind_of.push_back(activity.is_transfer ? -1 : kind_of(activity));
      if (activity.route >= 0) name_route(activity);
    }
    return std::move(parts_);
  }

 private:
  int kind_of(const Activity& activity) {
    const Instance& first = lowered_.dependencies.instances[lowered_.timed.members[activity.first_instance]];
    const DeviceProgram& device = lowered_.program.devices[static_cast<size_t>(first.device)];
    const int segment = device.order[static_cast<size_t>(first.slot)].segment;
    const auto [known, added] =
        kinds_.try_emplace({first.device, segment, first.instr, activity.count}, static_cast<int>(parts_.kinds.size()));
    if (!added) return known->second;
    std::vector<PlanParts::Part>& parts = parts_.kinds.emplace_back();
    const DeviceId id = device.kind == DeviceKind::host ? DeviceId() : cluster_.find_device(device.name);
    if (!id.valid()) return known->second;  // an endpoint's data are free
    std::map<uint32_t, double> seconds;
    for (uint32_t m = 0; m < activity.count; ++m) {
      const Instance& at = lowered_.dependencies.instances[lowered_.timed.members[activity.first_instance + m]];
      const Instr& instr = device.segments[static_cast<size_t>(segment)].instrs[static_cast<size_t>(at.instr)];
      const auto [cost, time] = cost_of(id, device, instr);
      seconds[cost] += time;
    }
    for (const auto& [cost, time] : seconds) parts.push_back({cost, time});
    return known->second;
  }

  std::pair<uint32_t, double> cost_of(DeviceId id, const DeviceProgram& device, const Instr& instr) {
    const ComputeDesc desc = instr.opcode == Opcode::compute ? lowered_.program.descs[static_cast<size_t>(instr.desc)]
                                                             : movement_desc(device, instr);
    const uint64_t name = hash_text(signature(desc));
    const auto [known, added] = known_.try_emplace({id, name}, static_cast<uint32_t>(parts_.costs.size()), 0.0);
    auto& [index, time] = known->second;
    if (added) {
      const Cost cost = costs_.cost(id, desc, instr.label).value();
      parts_.costs.push_back({id, name, cost.origin, cost.spread});
      time = cost.time.value();
    }
    return known->second;
  }

  void name_route(const Activity& activity) {
    uint64_t& name = parts_.route_names[static_cast<size_t>(activity.route)];
    if (name != 0) return;
    const std::array<uint64_t, 2> ends = {
        hash_text(lowered_.program.devices[static_cast<size_t>(activity.device)].host),
        hash_text(lowered_.program.devices[static_cast<size_t>(activity.peer)].host)};
    name = hash_bytes(ends.data(), sizeof ends);
  }

  const LoweredPlan& lowered_;
  const Cluster& cluster_;
  const CostTable& costs_;
  PlanParts parts_;
  std::map<std::tuple<int, int, int, uint32_t>, int> kinds_;  // by device, segment, first instruction and their number
  std::map<std::pair<DeviceId, uint64_t>, std::pair<uint32_t, double>> known_;  // index into costs, and seconds
};

}  // namespace

PlanParts parts_of(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs) {
  return PartFinder(lowered, cluster, costs).run();
}

}  // namespace nlsplit::inline ranking
