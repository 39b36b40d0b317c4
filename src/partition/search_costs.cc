#include <algorithm>
#include <map>

#include "kernels/assign.h"
#include "partition/score.h"

namespace nlsplit::inline partition {

std::vector<DeviceId> device_kinds(const std::vector<std::vector<double>>& node_seconds) {
  std::vector<DeviceId> kinds, firsts;
  for (const std::vector<double>& seconds : node_seconds) {
    const auto known = std::ranges::find_if(firsts, [&](DeviceId d) { return node_seconds[d.index()] == seconds; });
    if (known == firsts.end()) {
      kinds.emplace_back(kinds.size());
      firsts.push_back(kinds.back());
    } else {
      kinds.push_back(*known);
    }
  }
  return kinds;
}

Result<SearchCosts> search_costs(const Graph& at_micro_batch, int micro_batches, const Cluster& cluster,
                                 const CostTable& costs) {
  const Graph& graph = at_micro_batch;
  SearchCosts result;
  result.micro_batches = micro_batches;
  std::map<Level, Assignment> chosen;
  std::vector<ValueId> states;
  for (const StateUpdate& update : state_updates(graph)) states.push_back(update.state);
  for (const Device& device : cluster.devices) {
    if (chosen.contains(device.level)) continue;
    ASSIGN_OR_RETURN(chosen[device.level], assign_kernels(graph, device.level, costs.preference(), states));
  }
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    if (const DeviceId same = first_with_costs_of(DeviceId(d), cluster, costs); same != DeviceId(d)) {
      result.node_seconds.push_back(result.node_seconds[same.index()]);
      continue;
    }
    const Level level = cluster.devices[d].level;
    const Assignment& kernels = chosen[level];
    std::vector<double>& seconds = result.node_seconds.emplace_back(graph.nodes.size(), 0.0);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (is_view(graph.nodes[n].op)) continue;
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(DeviceId(d), kernels.descs[n], graph.nodes[n].name));
      seconds[n] = cost.time.value();
    }
    for (const Reorder& reorder : kernels.reorders) {
      const Value& value = graph.value(reorder.value);
      const TensorType from = with_block(value.type, kernels.made_in[reorder.value.index()]);
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(DeviceId(d), reorder_desc(from, reorder.block, level), value.name));
      seconds[std::min(reorder.before, graph.nodes.size() - 1)] += cost.time.value();
    }
  }
  result.cut_bytes.assign(graph.nodes.size() + 1, 0);
  for (const Crossing& crossing : find_crossings(graph, cluster.messages)) {
    if (crossing.is_output) result.output_bytes += crossing.bytes;
    if (crossing.made < 0) {
      result.input_bytes += crossing.bytes;
      continue;  // inputs come from the source, wherever they are read
    }
    const size_t last = crossing.read.empty() ? 0 : crossing.read.back();
    for (size_t i = static_cast<size_t>(crossing.made) + 1; i <= last; ++i) result.cut_bytes[i] += crossing.bytes;
  }
  result.cut_bytes.front() = result.input_bytes;
  result.cut_bytes.back() = result.output_bytes;
  return result;
}

}  // namespace nlsplit::inline partition
