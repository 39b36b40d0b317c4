#include "graph/passes/pattern.h"

#include <algorithm>

#include "graph/elements.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {

Pattern::Pattern(const Graph& graph, const WeightStore& weights)
    : graph_(graph), weights_(weights), uses_(use_counts(graph)), readers_(graph.values.size()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId input : graph.nodes[i].inputs) {
      if (input.valid()) readers_[input.index()] = NodeId(i);
    }
  }
}

const Node* Pattern::made_by(ValueId value, Op op) const {
  const Value& made = graph_.value(value);
  if (made.kind != ValueKind::node) return nullptr;
  const Node& node = graph_.node(made.producer);
  return node.op == op && node.epilogue.empty() ? &node : nullptr;
}

const Node* Pattern::made_for_one(ValueId value, Op op) const {
  return uses(value) == 1 && readers_[value.index()].valid() ? made_by(value, op) : nullptr;
}

const Node* Pattern::only_reader(ValueId value, Op op) const {
  const NodeId reader = readers_[value.index()];
  if (uses(value) != 1 || !reader.valid()) return nullptr;
  const Node& node = graph_.node(reader);
  return node.op == op && node.epilogue.empty() ? &node : nullptr;
}

std::optional<double> Pattern::number(ValueId value) const {
  const Value& constant = graph_.value(value);
  if (constant.kind != ValueKind::weight || element_count(constant.type.shape) != 1) return std::nullopt;
  const auto raw = weights_.materialise(constant.content);
  if (!raw.ok() || static_cast<int64_t>(raw->size()) != size_of(constant.type).value()) return std::nullopt;
  if (is_real(constant.type.dtype)) return reals_of(constant.type.dtype, *raw)[0];
  return static_cast<double>(wholes_of(constant.type.dtype, *raw)[0]);
}

bool Recognized::replace(const Node& last, Node by, const std::vector<const Node*>& parts) {
  by.name = last.name;
  by.outputs = last.outputs;
  const auto types = infer(by.op, input_types(out_, by), by.attrs);
  if (!types.ok() || types->size() != 1 || types->front() != out_.value(last.outputs[0]).type) return false;
  out_.nodes[index_of(last)] = std::move(by);
  for (const Node* part : parts) removed_[index_of(*part)] = true;
  return true;
}

Graph Recognized::done() const { return compacted(out_, removed_); }

}  // namespace nlsplit::inline graph
