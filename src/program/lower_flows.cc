#include "program/lower_flows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"

namespace nlsplit {

Result<std::vector<Flow>> find_flows(const KernelGraph& graph, const Plan& plan) {
  const Graph& g = graph.graph;
  const int stages = static_cast<int>(plan.stages.size());
  std::vector<int> stage_of(g.nodes.size(), source_stage);  // parts of inputs
  for (int s = 0; s < stages; ++s) {
    const Stage& stage = plan.stages[static_cast<size_t>(s)];
    std::fill(stage_of.begin() + static_cast<std::ptrdiff_t>(stage.begin),
              stage_of.begin() + static_cast<std::ptrdiff_t>(stage.end), s);
  }
  std::vector<bool> is_output(g.values.size(), false);
  for (const ValueId output : g.outputs) {
    const ValueId root = graph.root[output.index()];
    if (g.value(root).kind == ValueKind::weight) {
      return unsupported(fmt::format("output '{}' is a constant: nothing computes it", g.value(output).name));
    }
    is_output[root.index()] = true;
  }
  std::vector<Flow> flows;
  const auto add = [&](ValueId root, int producer) {
    Flow flow{root, producer, {}};
    for (const size_t reader : graph.readers[root.index()]) {  // ascending, so their stages are too
      const int stage = stage_of[reader];
      if (stage > producer && (flow.consumers.empty() || flow.consumers.back() != stage))
        flow.consumers.push_back(stage);
    }
    if (is_output[root.index()] && !graph.training) flow.consumers.push_back(stages);
    if (!flow.consumers.empty()) flows.push_back(std::move(flow));
  };
  for (const ValueId input : g.inputs) add(input, source_stage);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (is_view(g.nodes[n].op)) continue;
    for (const ValueId output : g.nodes[n].outputs) add(output, stage_of[n]);
  }
  constexpr size_t most_tags = largest_tag + 1;
  if (flows.size() >= most_tags)  // one more for credits
    return unsupported(fmt::format("{} values cross stages, more than there are tags", flows.size()));
  return flows;
}

}  // namespace nlsplit
