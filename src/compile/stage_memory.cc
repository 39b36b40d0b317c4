#include "compile/stage_memory.h"

#include <set>

namespace nlsplit::inline compiler {

StageMemory stage_memory(const KernelGraph& graph, const Stage& stage, bool recompute) {
  const Training& training = *graph.training;
  const StepNodes& nodes = training.nodes;
  const Graph& g = training.step.graph;
  std::set<ValueId> weights, read_by_input, read_by_weight;  // roots
  const auto visit = [&](size_t n) {
    if (!nodes.computed[n]) return;
    for (const ValueId read : reads_of(g.nodes[n])) {
      const ValueId root = training.step.root[read.index()];
      if (g.value(root).kind == ValueKind::weight)
        weights.insert(root);
      else if (nodes.phases[n] == NodePhase::input)
        read_by_input.insert(root);
      else if (nodes.phases[n] == NodePhase::weight)
        read_by_weight.insert(root);
    }
  };
  for (size_t n = stage.begin; n < stage.end; ++n) {
    visit(n);
    for (const size_t derived : nodes.derived[n]) visit(derived);
  }
  StageMemory memory{bytes(0), bytes(0), bytes(0)};
  for (const ValueId root : weights) memory.weights += size_of(g.value(root).type);  // also of states
  // What each phase leaves for later ones: what was given comes with F, gradients with I.
  const auto phase_of = [&](ValueId root) {
    const Value& value = g.value(root);
    return value.kind == ValueKind::node ? nodes.phases[value.producer.index()] : NodePhase::forward;
  };
  const auto given = [&](ValueId root) {
    const Value& value = g.value(root);
    return value.kind != ValueKind::node || nodes.origins[value.producer.index()] < stage.begin;
  };
  std::set<ValueId> kept = read_by_weight;
  kept.insert(read_by_input.begin(), read_by_input.end());
  for (const ValueId root : kept) {
    if (phase_of(root) == NodePhase::forward && (!recompute || given(root)))
      memory.kept_until_input += size_of(g.value(root).type);
  }
  for (const ValueId root : read_by_weight) {
    if (phase_of(root) != NodePhase::weight) memory.kept_until_weights += size_of(g.value(root).type);
  }
  return memory;
}

}  // namespace nlsplit::inline compiler
