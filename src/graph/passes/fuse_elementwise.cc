#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// The later of the node's operands that an earlier node could make with this step behind it; -1: none.
int fusable_side(const Graph& graph, const Node& step, const std::vector<int>& uses) {
  const bool binary = step.op == Op::Add || step.op == Op::Mul;
  if (!has(step.op, traits::is_step) && !binary) return -1;
  if (!step.epilogue.empty()) return -1;  // its operands may be made too late
  int best = -1;
  uint32_t best_producer = 0;
  for (size_t side = 0; side < (binary ? 2 : 1); ++side) {
    const ValueId from = step.inputs[side];
    const Value& value = graph.value(from);
    if (value.kind != ValueKind::node || uses[from.index()] != 1) continue;
    if (value.type != graph.value(step.outputs[0]).type || !has(graph.node(value.producer).op, traits::takes_steps))
      continue;
    if (binary) {
      const Value& other = graph.value(step.inputs[1 - side]);
      // The other operand must be there when the producer runs, with as many samples at any batch: no constant.
      const bool there =
          other.kind == ValueKind::input || (other.kind == ValueKind::node && other.producer < value.producer);
      if (!there || other.type != value.type) continue;
    }
    const auto producer = static_cast<uint32_t>(value.producer.index());
    if (best < 0 || producer > best_producer) {
      best = static_cast<int>(side);
      best_producer = producer;
    }
  }
  return best;
}

}  // namespace

// Element-wise steps behind a node that alone feeds them become its epilogue: Conv + Add(skip) + Relu is one node.
Result<Graph> fuse_elementwise(const Graph& graph, WeightStore&) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node step = out.nodes[i];
    const int side = fusable_side(out, step, uses);
    if (side < 0) continue;
    const NodeId producer = out.value(step.inputs[static_cast<size_t>(side)]).producer;
    Node& into = out.nodes[producer.index()];
    const ValueId operand = step.inputs.size() > 1 ? step.inputs[1 - static_cast<size_t>(side)] : ValueId();
    into.epilogue.push_back({step.op, operand, step.attrs, step.name});
    into.outputs = step.outputs;
    out.values[step.outputs[0].index()].producer = producer;
    removed[i] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
