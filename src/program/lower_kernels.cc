// choose_kernels: all that lowering asks of a graph and the catalogue, whatever the plan.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "program/lower.h"

namespace nlsplit {
namespace {

std::string label_of(const Node& node) {
  std::string label = node.name;
  for (const EpilogueStep& step : node.epilogue) label += ", " + step.name;
  return label;
}

std::vector<ValueId> find_roots(const Graph& graph) {
  std::vector<ValueId> root;
  for (size_t v = 0; v < graph.values.size(); ++v) root.push_back(ValueId(v));
  for (const Node& node : graph.nodes) {
    if (is_view(node.op)) root[node.outputs[0].index()] = root[node.inputs[0].index()];
  }
  return root;
}

NodeKernel facts_of(const ComputeDesc& desc, Isa isa) {
  NodeKernel facts;
  facts.kernel = find_kernel(desc.kernel);
  CHECK(facts.kernel != nullptr, "a chosen kernel is not in the catalogue");
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    facts.packed.push_back(facts.kernel->packed_bytes == nullptr ? bytes(0) : facts.kernel->packed_bytes(desc, i, isa));
  }
  return facts;
}

}  // namespace

WantedKernels wanted_kernels(const KernelGraph& whole, std::span<const int> origin) {
  WantedKernels wanted;
  for (const auto& [isa, chosen] : whole.chosen) {
    for (const int node : origin)
      wanted[isa].push_back(node < 0 ? std::string() : chosen.descs[static_cast<size_t>(node)].kernel);
  }
  return wanted;
}

Result<KernelGraph> choose_kernels(Graph at_micro_batch, const std::vector<Isa>& levels, const KernelPreference& prefer,
                                   const std::optional<TrainingOptions>& training, const WantedKernels& wanted) {
  KernelGraph result;
  result.graph = std::move(at_micro_batch);
  const Graph& graph = result.graph;
  result.root = find_roots(graph);
  result.readers.resize(graph.values.size());
  if (training) {
    ASSIGN_OR_RETURN(result.training, plan_training(graph, result.root, *training));
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    result.labels.push_back(label_of(graph.nodes[n]));
    if (is_view(graph.nodes[n].op)) continue;
    for (const ValueId value : reads_of(graph.nodes[n])) {
      std::vector<size_t>& readers = result.readers[result.root[value.index()].index()];
      if (readers.empty() || readers.back() != n) readers.push_back(n);
    }
  }
  const std::vector<bool> no_weights;
  for (const Isa isa : levels) {
    if (result.chosen.contains(isa)) continue;
    const auto found = wanted.find(isa);
    ASSIGN_OR_RETURN(result.chosen[isa],
                     assign_kernels(graph, isa, prefer, result.training ? result.training->trained : no_weights,
                                    found == wanted.end() ? std::span<const std::string>() : found->second));
    const std::vector<ComputeDesc>& descs = result.chosen[isa].descs;
    std::vector<NodeKernel>& kernels = result.kernels[isa];
    std::unordered_multimap<uint64_t, size_t> by_signature;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (is_view(graph.nodes[n].op)) {
        kernels.push_back({n, nullptr, {}});
        continue;
      }
      const ComputeDesc& desc = descs[n];
      NodeKernel& facts = kernels.emplace_back(facts_of(desc, isa));
      facts.same_as = n;
      const uint64_t key = hash_text(signature(desc));
      const auto [begin, end] = by_signature.equal_range(key);
      const auto same = std::find_if(begin, end, [&](const auto& entry) { return descs[entry.second] == desc; });
      if (same != end)
        facts.same_as = same->second;
      else
        by_signature.emplace(key, n);
    }
  }
  return result;
}

}  // namespace nlsplit
