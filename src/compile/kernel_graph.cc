#include "compile/kernel_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "kernels/choices.h"

namespace nlsplit::inline compiler {
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

NodeKernel facts_of(const ComputeDesc& desc) {
  NodeKernel facts;
  for (size_t i = 0; i < desc.inputs.size(); ++i) facts.packed.push_back(packed_bytes_of(desc, i));
  facts.workspace = workspace_of(desc, 1);
  facts.in_place = in_place_inputs(desc);
  return facts;
}

// computed: [node], the others have no readers; empty: all are.
KernelGraph with_readers(Graph graph, const std::vector<bool>& computed) {
  KernelGraph result;
  result.graph = std::move(graph);
  result.root = find_roots(result.graph);
  result.readers.resize(result.graph.values.size());
  for (const Value& value : result.graph.values) result.names.insert(value.name);
  for (size_t n = 0; n < result.graph.nodes.size(); ++n) {
    const Node& node = result.graph.nodes[n];
    result.labels.push_back(label_of(node));
    result.computed.push_back(computed.empty() ? !is_view(node.op) : computed[n]);
    if (!result.computed[n]) continue;
    for (const ValueId value : reads_of(node)) {
      std::vector<size_t>& readers = result.readers[result.root[value.index()].index()];
      if (readers.empty() || readers.back() != n) readers.push_back(n);
    }
  }
  return result;
}

// Facts of the kernels; equal computations are found.
std::vector<NodeKernel> facts_of(const Graph& graph, const std::vector<ComputeDesc>& descs) {
  std::vector<NodeKernel> kernels;
  std::unordered_multimap<uint64_t, size_t> by_hash;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph.nodes[n].op)) {
      kernels.push_back({n, {}, bytes(0), 0});
      continue;
    }
    const uint64_t key = hash_of(descs[n]);
    const auto [begin, end] = by_hash.equal_range(key);
    const auto same = std::find_if(begin, end, [&](const auto& entry) { return descs[entry.second] == descs[n]; });
    if (same != end) {
      kernels.push_back(NodeKernel(kernels[same->second]));
      continue;
    }
    kernels.push_back(facts_of(descs[n]));
    kernels.back().same_as = n;
    by_hash.emplace(key, n);
  }
  return kernels;
}

Status choose(KernelGraph& graph, const std::vector<Level>& levels, const KernelPreference& prefer,
              const WantedKernels& wanted) {
  for (const Level level : levels) {
    if (graph.chosen.contains(level)) continue;
    const auto found = wanted.find(level);
    ASSIGN_OR_RETURN(graph.chosen[level],
                     assign_kernels(graph.graph, level, prefer, graph.states,
                                    found == wanted.end() ? std::span<const KernelId>() : found->second));
    graph.kernels[level] = facts_of(graph.graph, graph.chosen[level].descs);
  }
  return ok_status();
}

// The network's nodes have the kernels that they have in the step.
void take_from_step(const KernelGraph& step, KernelGraph& network) {
  const auto nodes = static_cast<std::ptrdiff_t>(network.graph.nodes.size());
  for (const auto& [level, chosen] : step.chosen) {
    CHECK(chosen.reorders.empty(), "training works row-major");
    Assignment& own = network.chosen[level];
    own.descs.assign(chosen.descs.begin(), chosen.descs.begin() + nodes);
    own.made_in.assign(network.graph.values.size(), 0);
    const std::vector<NodeKernel>& kernels = step.kernels.at(level);  // the first that are the same come before
    network.kernels[level].assign(kernels.begin(), kernels.begin() + nodes);
  }
}

}  // namespace

int64_t samples_of(const Graph& graph) {
  if (graph.inputs.empty() || graph.value(graph.inputs[0]).type.shape.empty()) return 1;
  return graph.value(graph.inputs[0]).type.shape[0];
}

WantedKernels wanted_kernels(const KernelGraph& whole, std::span<const int> origin) {
  WantedKernels wanted;
  for (const auto& [level, chosen] : whole.chosen) {
    for (const int node : origin)
      wanted[level].push_back(node < 0 ? KernelId() : chosen.descs[static_cast<size_t>(node)].kernel);
  }
  return wanted;
}

WantedKernels wanted_weight_forms(const KernelGraph& like) {
  WantedKernels wanted;
  for (const auto& [level, chosen] : like.chosen) {
    for (size_t n = 0; n < chosen.descs.size(); ++n) {
      const bool packs = std::ranges::any_of(like.kernels.at(level)[n].packed, [](Bytes b) { return b.value() > 0; });
      wanted[level].push_back(packs ? chosen.descs[n].kernel : KernelId());
    }
  }
  return wanted;
}

Result<KernelGraph> choose_kernels(Graph at_micro_batch, const std::vector<Level>& levels,
                                   const KernelPreference& prefer, const std::optional<TrainingOptions>& training,
                                   const WantedKernels& wanted, std::vector<ValueId> states, size_t input_parts) {
  if (!training) {
    KernelGraph result = with_readers(std::move(at_micro_batch), {});
    result.input_parts = input_parts;
    result.states = std::move(states);
    result.updates = state_updates(result.graph);
    for (const StateUpdate& update : result.updates) result.states.push_back(update.state);
    RETURN_IF_ERROR(choose(result, levels, prefer, wanted));
    return result;
  }
  ASSIGN_OR_RETURN(StepGraph step, step_graph(at_micro_batch, *training));
  KernelGraph result = with_readers(std::move(step.network), {});
  result.input_parts = input_parts;
  Training made;
  made.options = *training;
  made.step = with_readers(std::move(step.graph), step.nodes.computed);
  made.step.input_parts = input_parts;
  for (const auto* changes : {&step.nodes.sums, &step.nodes.updates})
    for (const StateUpdate& change : *changes) made.step.states.push_back(change.state);
  WantedKernels of_step = wanted;
  for (auto& [level, kernels] : of_step) kernels.resize(made.step.graph.nodes.size());
  RETURN_IF_ERROR(choose(made.step, levels, prefer, of_step));
  made.nodes = std::move(step.nodes);
  take_from_step(made.step, result);
  result.training = std::make_shared<const Training>(std::move(made));
  return result;
}

}  // namespace nlsplit::inline compiler
