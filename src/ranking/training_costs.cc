#include "ranking/training_costs.h"

#include "partition/score.h"

namespace nlsplit::inline ranking {

Result<SearchCosts> training_search_costs(const KernelGraph& graph, int micro_batches, const Cluster& cluster,
                                          const CostTable& costs) {
  const Graph& g = graph.graph;
  const Training& training = *graph.training;
  const Graph& step = training.step.graph;
  SearchCosts result;
  result.micro_batches = micro_batches;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceId device(d);
    if (const DeviceId same = first_with_costs_of(device, cluster, costs); same != device) {
      result.node_seconds.push_back(result.node_seconds[same.index()]);
      continue;
    }
    const Level level = cluster.devices[d].level;
    const std::vector<ComputeDesc>& descs = training.step.chosen.at(level).descs;
    const std::vector<NodeKernel>& kernels = training.step.kernels.at(level);
    std::vector<double> known(step.nodes.size(), -1);  // by the first node with the same computation
    std::vector<double>& seconds = result.node_seconds.emplace_back(g.nodes.size(), 0.0);
    for (size_t n = 0; n < step.nodes.size(); ++n) {
      if (!training.nodes.computed[n] || training.nodes.phases[n] == NodePhase::step) continue;
      double& time = known[kernels[n].same_as];
      if (time < 0) {
        ASSIGN_OR_RETURN(const Cost cost, costs.cost(device, descs[n], step.nodes[n].name));
        time = cost.time.value();
      }
      const bool twice = training.options.recompute && n < training.nodes.network;
      seconds[training.nodes.origins[n]] += twice ? 2 * time : time;
    }
  }
  result.cut_bytes.assign(g.nodes.size() + 1, 0);
  for (const Crossing& crossing : find_crossings(g, DType::f32)) {
    if (crossing.made < 0) {
      result.input_bytes += crossing.bytes;
      continue;
    }
    const size_t last = crossing.read.empty() ? 0 : crossing.read.back();
    for (size_t i = static_cast<size_t>(crossing.made) + 1; i <= last; ++i)
      result.cut_bytes[i] += 2 * crossing.bytes;  // there, and its gradient back
  }
  result.cut_bytes.front() = result.input_bytes;
  return result;
}

}  // namespace nlsplit::inline ranking
