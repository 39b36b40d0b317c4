// What training adds to a graph: which weights are trained, the gradients of every node, and the loss at its outputs.
//
// The backward pass is reverse accumulation over the graph's own nodes (docs/training.md): for each node, last one
// first, an *input gradient* computation (the phase I of schedule/schedules.h) and a *weight gradient* one (W), which
// may run later. The loss is the softmax cross-entropy of the outputs.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "graph/optimizer.h"
#include "kernels/assign.h"
#include "kernels/gradient.h"

namespace nlsplit {

struct TrainingOptions {
  Optimizer optimizer = Optimizer::sgd;
  bool recompute = false;  // a stage keeps only what it was given, and computes the rest again before its gradients
  std::set<ContentId> constants = {};  // weights that are none: masks, tables of positions (WeightStore::formulas)
};

// One part of a node's gradient: I or W.
struct NodeGradient {
  uint64_t by = 0;              // bit i: the gradient by input i is wanted
  uint64_t passes = 0;          // of those, the ones that are the output's gradient itself
  size_t same_as = 0;           // the first node with the same desc
  ComputeDesc desc;             // by & ~passes; nothing if that is empty
  std::vector<ValueId> writes;  // the inputs it is by, in the order of the desc's results
  std::vector<ValueId> keeps;   // values it reads besides the output's gradient, in the order of the desc's operands
  bool computes() const { return (by & ~passes) != 0; }
};

struct Training {
  TrainingOptions options;
  std::vector<bool> trained;       // [value]: a weight that changes
  std::vector<bool> has_gradient;  // [value]: made by a node, and depends on a trained weight
  std::vector<NodeGradient> input_gradients, weight_gradients;  // [node]
  std::vector<ValueId> losses;                                  // the outputs that have a gradient; one for each root
};

// root: of KernelGraph. A weight is trained if it is f32, has more than one element (scalars are constants of a
// formula), is not among the constants and its operator has a gradient by it. Errors: a node of which no gradient is
// known, by name; nothing to train.
Result<Training> plan_training(const Graph& graph, const std::vector<ValueId>& root, const TrainingOptions& options);

}  // namespace nlsplit
