// Of pass `schedule`: how the devices of a stage add up its gradients.
#include "compile/collective_costs.h"
#include "compile/lowering.h"
#include "graph/memory.h"

namespace nlsplit::inline compiler {

Status choose_reductions(Lowering& lowering) {
  const StepNodes& step = lowering.training->nodes;
  constexpr int64_t element_bytes = 4;                          // f32
  constexpr int64_t aligned = arena_alignment / element_bytes;  // kernels write their results here
  for (size_t s = 0; s < lowering.reductions.size(); ++s) {
    Reduction& reduction = lowering.reductions[s];
    for (const size_t t : lowering.nodes.trained[s]) {
      const ValueId sum = step.sums[t].state;
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
      ASSIGN_OR_RETURN(collective.algorithm, choose_algorithm(collective, costs));
    }
    reduction.rounds = rounds_of(collective, hosts);
    reduction.of_members = rounds_of_members(reduction.rounds, hosts.size());
  }
  return ok_status();
}

}  // namespace nlsplit::inline compiler
