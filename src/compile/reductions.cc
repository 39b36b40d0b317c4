// Of pass `schedule`: how the devices of a stage add up its gradients.
#include <algorithm>

#include "compile/lowering.h"
#include "graph/memory.h"

namespace nlsplit {

Status choose_reductions(Lowering& lowering) {
  const StepNodes& step = lowering.training->nodes;
  constexpr int64_t element_bytes = 4;                          // f32
  constexpr int64_t aligned = arena_alignment / element_bytes;  // kernels write their results here
  for (size_t s = 0; s < lowering.reductions.size(); ++s) {
    Reduction& reduction = lowering.reductions[s];
    for (const size_t t : lowering.nodes.trained[s]) {
      const int64_t count = element_count(lowering.graph->graph.value(step.trained[t]).type.shape);
      reduction.begin[t] = reduction.elements;
      reduction.elements += (count + aligned - 1) / aligned * aligned;
    }
    Collective& collective = reduction.collective;
    if (collective.group.size() < 2 || reduction.elements == 0) continue;
    std::vector<HostId> hosts;
    for (const int device : collective.group)
      hosts.push_back(lowering.cluster->device(lowering.devices[at(device)]).host);
    if (lowering.all_reduce) {
      collective.algorithm = *lowering.all_reduce;
    } else {
      ASSIGN_OR_RETURN(collective.algorithm,
                       choose_algorithm(hosts, reduction.elements, element_bytes, *lowering.cluster));
    }
    reduction.rounds = rounds_of(collective.algorithm, hosts, reduction.elements);
  }
  return ok_status();
}

}  // namespace nlsplit
