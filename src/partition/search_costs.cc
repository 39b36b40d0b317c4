#include <algorithm>
#include <map>

#include "partition/score.h"

namespace nlsplit {

Result<SearchCosts> search_costs(const Graph& at_micro_batch, int micro_batches, const Cluster& cluster,
                                 const CostTable& costs) {
  const Graph& graph = at_micro_batch;
  SearchCosts result;
  result.micro_batches = micro_batches;
  std::map<Isa, std::vector<ComputeDesc>> descs;
  for (const Device& device : cluster.devices) {
    if (descs.contains(device.isa)) continue;
    std::vector<ComputeDesc>& of_level = descs[device.isa];
    for (const Node& node : graph.nodes) {
      ComputeDesc& desc = of_level.emplace_back();
      if (is_view(node.op)) continue;
      desc = describe(graph, node);
      auto kernel = choose_kernel(desc, device.isa);
      if (!kernel) {
        Error error = kernel.error();
        error.message = "layer '" + node.name + "': " + error.message;
        return error;
      }
      desc.kernel = std::move(kernel).value();
    }
  }
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    std::vector<double>& seconds = result.node_seconds.emplace_back(graph.nodes.size(), 0.0);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (is_view(graph.nodes[n].op)) continue;
      ASSIGN_OR_RETURN(const Cost cost, costs.cost(DeviceId(d), descs[cluster.devices[d].isa][n], graph.nodes[n].name));
      seconds[n] = cost.time.value();
    }
  }
  result.cut_bytes.assign(graph.nodes.size() + 1, 0);
  for (const Crossing& crossing : find_crossings(graph)) {
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

}  // namespace nlsplit
