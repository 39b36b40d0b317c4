// Of pass `schedule`: how the devices of a stage add up its gradients.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "compile/collective_costs.h"
#include "compile/lowering.h"
#include "graph/memory.h"

namespace nlsplit::inline compiler {

bool Lowering::has_factor(int device) const {
  const std::vector<int>& adds = group(clipping->stage);
  return std::ranges::find(adds, device) != adds.end();
}

std::vector<int> Lowering::factor_goes_to() const {
  std::set<int> to;
  for (size_t s = 0; s < reductions.size(); ++s) {
    if (nodes.step[s].empty()) continue;  // it updates nothing
    for (const int device : reductions[s].collective.group) {
      if (!has_factor(device)) to.insert(device);
    }
  }
  return {to.begin(), to.end()};
}

std::vector<int> Lowering::part_goes_to(const Tied& tied, const Tied::Part& part) const {
  const std::vector<int>& has = group(part.stage);
  std::set<int> to;
  for (const int stage : tied.stages) {
    for (const int device : group(stage)) {
      if (std::ranges::find(has, device) == has.end()) to.insert(device);
    }
  }
  return {to.begin(), to.end()};
}

int Lowering::stage_of_sum(ValueId sum) const {
  const auto has = [&](const Reduction& reduction) { return reduction.begin.contains(sum); };
  const auto found = std::ranges::find_if(reductions, has);
  CHECK(found != reductions.end(), "a sum of no stage");
  return static_cast<int>(found - reductions.begin());
}

Status check_sums(const Lowering& lowering) {
  const std::string& name = lowering.plan->schedule;
  if (lowering.online)
    return unsupported(fmt::format("schedule {} decides the order of sums while it runs: not exact", name));
  for (size_t d = 0; d < lowering.table.devices.size(); ++d) {
    std::map<std::pair<int, Phase>, int> last;  // by stage: the micro-batch that was added last
    for (const ScheduledSlot& slot : lowering.table.devices[d]) {
      if (slot.phase != Phase::input_gradient && slot.phase != Phase::weight_gradient) continue;
      const auto [before, is_first] = last.try_emplace({slot.stage, slot.phase}, slot.micro_batch);
      if (!is_first && before->second > slot.micro_batch) {
        return unsupported(
            fmt::format("schedule {}: {} has the {} behind that of micro-batch {}: its sums are not exact", name,
                        lowering.cluster->device(lowering.devices[d]).name, slot_text(slot), before->second));
      }
      before->second = slot.micro_batch;
    }
  }
  return ok_status();
}

Status choose_reductions(Lowering& lowering) {
  const StepNodes& step = lowering.training->nodes;
  constexpr int64_t element_bytes = 4;                          // f32
  constexpr int64_t aligned = arena_alignment / element_bytes;  // kernels write their results here
  for (size_t s = 0; s < lowering.reductions.size(); ++s) {
    Reduction& reduction = lowering.reductions[s];
    for (const size_t i : lowering.nodes.sums[s]) {
      const ValueId sum = step.sums[i].state;
      const int64_t count = element_count(lowering.graph->graph.value(sum).type.shape);
      reduction.begin[sum] = reduction.elements;
      reduction.elements += (count + aligned - 1) / aligned * aligned;
    }
    Collective& collective = reduction.collective;
    if (collective.group.size() < 2 || reduction.elements == 0) continue;
    collective.elements = {reduction.elements};
    std::vector<DeviceId> members;
    std::vector<HostId> hosts;
    for (const int device : collective.group) {
      members.push_back(lowering.devices[at(device)]);
      hosts.push_back(lowering.cluster->device(members.back()).host);
    }
    if (lowering.all_reduce) {
      collective.algorithm = *lowering.all_reduce;
    } else {
      CollectiveCosts costs{hosts, *lowering.cluster, element_bytes};
      costs.sum = sums_by(lowering.costs, members);
      ASSIGN_OR_RETURN(collective.algorithm, choose_algorithm(collective, costs, lowering.exact));
    }
    reduction.rounds = rounds_of(collective, hosts);
    reduction.of_members = rounds_of_members(reduction.rounds, hosts.size());
  }
  return ok_status();
}

}  // namespace nlsplit::inline compiler
