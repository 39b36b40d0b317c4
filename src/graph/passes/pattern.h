// Matches the parts of an operator, from its result upwards: for the passes that recognize operators.
//
//   const Pattern pattern(graph, weights);
//   const Node* root = pattern.made_for_one(node.inputs[1], Op::Sqrt);     // nullptr: it is something else
//   if (root != nullptr && pattern.number(…) == 1.0) …
#pragma once

#include <optional>
#include <vector>

#include "graph/operators/operator.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// Both must outlive it and stay as they are.
class Pattern {
 public:
  Pattern(const Graph& graph, const WeightStore& weights);

  const Graph& graph() const { return graph_; }
  int uses(ValueId value) const { return uses_[value.index()]; }  // as use_counts
  // The node that makes it, if it is of that op and nothing is fused behind it.
  const Node* made_by(ValueId value, Op op) const;
  // And if besides it is read once and no output of the graph, so that it can go with its reader.
  const Node* made_for_one(ValueId value, Op op) const;
  // The node of that op, nothing fused behind it, that alone reads the value as an input.
  const Node* only_reader(ValueId value, Op op) const;
  std::optional<double> number(ValueId value) const;  // of a constant with one element

 private:
  const Graph& graph_;
  const WeightStore& weights_;
  std::vector<int> uses_;
  std::vector<NodeId> readers_;  // the last node that reads it
};

// A graph in which recognized operators take the place of their parts.
class Recognized {
 public:
  explicit Recognized(const Graph& graph) : graph_(graph), out_(graph), removed_(graph.nodes.size(), false) {}

  Graph& graph() { return out_; }  // for new weights
  // `by` stands where `last` stood, under its name and with its results; the parts go. false: the type rules refuse it,
  // and all stays as it was.
  bool replace(const Node& last, Node by, const std::vector<const Node*>& parts);
  Graph done() const;

 private:
  size_t index_of(const Node& node) const { return static_cast<size_t>(&node - graph_.nodes.data()); }
  const Graph& graph_;
  Graph out_;
  std::vector<bool> removed_;
};

}  // namespace nlsplit::inline graph
