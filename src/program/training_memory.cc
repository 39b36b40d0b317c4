#include <set>

#include "program/lower_training.h"

namespace nlsplit {

StageMemory stage_memory(const KernelGraph& graph, const Stage& stage) {
  const Graph& g = graph.graph;
  const Training& training = *graph.training;
  StageMemory memory{bytes(0), bytes(0), bytes(0)};
  std::set<ValueId> weights, kept_for_input, kept_for_weights, output_gradients;
  for (size_t n = stage.begin; n < stage.end; ++n) {
    if (is_view(g.nodes[n].op)) continue;
    for (const ValueId read : reads_of(g.nodes[n])) {
      const ValueId root = graph.root[read.index()];
      if (g.value(root).kind == ValueKind::weight) weights.insert(root);
    }
    const auto keep = [&](const NodeGradient& part, std::set<ValueId>& kept) {
      for (const ValueId value : part.keeps) {
        const ValueId root = graph.root[value.index()];
        if (g.value(root).kind != ValueKind::weight) kept.insert(root);
      }
    };
    keep(training.input_gradients[n], kept_for_input);
    keep(training.weight_gradients[n], kept_for_weights);
    if (training.weight_gradients[n].by != 0) output_gradients.insert(g.nodes[n].outputs[0]);
  }
  for (const ValueId loss : training.losses) {
    const size_t made = g.value(graph.root[loss.index()]).producer.index();
    if (stage.begin <= made && made < stage.end) kept_for_input.insert(graph.root[loss.index()]);
  }
  for (const ValueId root : weights) {
    const int copies = training.trained[root.index()] ? 2 + state_tensors(training.options.optimizer) : 1;
    memory.weights += bytes(copies * size_of(g.value(root).type).value());
  }
  std::set<ValueId> kept = kept_for_weights;
  kept.insert(kept_for_input.begin(), kept_for_input.end());
  const auto given = [&](ValueId root) {
    const Value& value = g.value(root);
    return value.kind != ValueKind::node || value.producer.index() < stage.begin;
  };
  for (const ValueId root : kept) {
    if (!training.options.recompute || given(root)) memory.kept_until_input += size_of(g.value(root).type);
  }
  for (const ValueId root : kept_for_weights) memory.kept_until_weights += size_of(g.value(root).type);
  for (const ValueId root : output_gradients) memory.kept_until_weights += size_of(g.value(root).type);
  return memory;
}

}  // namespace nlsplit
