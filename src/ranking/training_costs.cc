#include "ranking/training_costs.h"

#include <map>

#include "cost/same_costs.h"
#include "partition/score.h"

namespace nlsplit {
namespace {

using Known = std::map<size_t, double>;  // by the first node with the same computation

Result<double> known_cost(Known& known, size_t distinct, const ComputeDesc& desc, const CostTable& costs,
                          DeviceId device, std::string_view layer) {
  const auto [found, is_new] = known.try_emplace(distinct, 0.0);
  if (is_new) {
    ASSIGN_OR_RETURN(const Cost cost, costs.cost(device, desc, layer));
    found->second = cost.time.value();
  }
  return found->second;
}

}  // namespace

Result<SearchCosts> training_search_costs(const KernelGraph& graph, int micro_batches, const Cluster& cluster,
                                          const CostTable& costs) {
  const Graph& g = graph.graph;
  const Training& training = *graph.training;
  SearchCosts result;
  result.micro_batches = micro_batches;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceId device(d);
    if (const DeviceId same = first_with_costs_of(device, cluster, costs); same != device) {
      result.node_seconds.push_back(result.node_seconds[same.index()]);
      continue;
    }
    const Isa isa = cluster.devices[d].isa;
    const std::vector<ComputeDesc>& descs = graph.chosen.at(isa).descs;
    const std::vector<NodeKernel>& kernels = graph.kernels.at(isa);
    Known forward, by_inputs, by_weights;
    std::vector<double>& seconds = result.node_seconds.emplace_back(g.nodes.size(), 0.0);
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      if (is_view(g.nodes[n].op)) continue;
      const std::string& layer = g.nodes[n].name;
      ASSIGN_OR_RETURN(const double f, known_cost(forward, kernels[n].same_as, descs[n], costs, device, layer));
      seconds[n] += training.options.recompute ? 2 * f : f;
      const NodeGradient &input = training.input_gradients[n], &weight = training.weight_gradients[n];
      if (input.computes()) {
        ASSIGN_OR_RETURN(const double i, known_cost(by_inputs, input.same_as, input.desc, costs, device, layer));
        seconds[n] += i;
      }
      if (weight.computes()) {
        ASSIGN_OR_RETURN(const double w, known_cost(by_weights, weight.same_as, weight.desc, costs, device, layer));
        seconds[n] += w;
      }
    }
  }
  result.cut_bytes.assign(g.nodes.size() + 1, 0);
  for (const Crossing& crossing : find_crossings(g)) {
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

}  // namespace nlsplit
