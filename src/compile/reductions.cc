// Of pass `schedule`: how the devices of a stage add up its gradients.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "compile/lowering.h"
#include "graph/memory.h"
#include "program/data_movement.h"

namespace nlsplit::inline compiler {

// An algorithm whose sums have no cost is not chosen: nothing could predict the plan.
constexpr double no_cost = std::numeric_limits<double>::infinity();

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
    std::vector<HostId> hosts;
    for (const int device : collective.group)
      hosts.push_back(lowering.cluster->device(lowering.devices[at(device)]).host);
    if (lowering.all_reduce) {
      collective.algorithm = *lowering.all_reduce;
    } else {
      CollectiveCosts costs{hosts, *lowering.cluster, element_bytes};
      std::map<std::tuple<int, size_t, int64_t>, double> known;
      costs.sum = [&](int member, size_t operands, int64_t elements) {
        if (lowering.costs == nullptr) return 0.0;
        const auto [sum, is_new] = known.try_emplace({member, operands, elements}, no_cost);
        if (!is_new) return sum->second;
        const DeviceId device = lowering.devices[at(collective.group[at(member)])];
        const auto cost = lowering.costs->cost(device, sum_desc(operands, {DType::f32, {elements}}));
        if (cost.ok()) sum->second = cost->time.value();
        return sum->second;
      };
      ASSIGN_OR_RETURN(collective.algorithm, choose_algorithm(reduction.elements, costs));
    }
    reduction.rounds = rounds_of(collective.algorithm, hosts, reduction.elements);
  }
  return ok_status();
}

}  // namespace nlsplit::inline compiler
