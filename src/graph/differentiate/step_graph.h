// A training step as a graph: the network's nodes, then those of the loss, then those of the gradients
// (graph/differentiate/), each summed over the micro-batches by an Accumulate, then the updates of the weights. Plans
// cut the network; each further node is in the stage of the node it belongs to.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "graph/differentiate/differentiate.h"
#include "graph/differentiate/loss.h"
#include "graph/optimizer.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

struct TrainingOptions {
  Optimizer optimizer = Optimizer::sgd;
  bool recompute = false;  // a stage keeps only what it was given, and computes the rest again before its gradients
  Loss loss = Loss::softmax_cross_entropy;
  int micro_batches = 1;               // of a step
  std::set<ContentId> constants = {};  // weights that are none: masks, tables of positions (WeightStore::formulas)
  std::optional<double> learning_rate = {};  // none: usual_learning_rate
};

// What a graph of a training step says of its nodes.
struct StepNodes {
  size_t network = 0;                        // nodes [0, network) are the network's
  std::vector<NodePhase> phases;             // [node]
  std::vector<size_t> origins;               // [node]: the network's node whose stage it is in; of those themselves
  std::vector<std::vector<size_t>> derived;  // [node of the network]: those of the loss and of gradients it is the
                                             // origin of, ascending
  std::vector<bool> computed;                // [node]: the loss or an update depends on it; never a view
  std::vector<ValueId> trained;              // weights
  // Behind an update a state holds a trained weight, or what the optimizer keeps of one; behind an Accumulate the sum
  // of a gradient, which each step begins anew.
  std::vector<StateUpdate> sums;     // [trained]: of gradients, flat; updates read their values
  std::vector<StateUpdate> updates;  // by update node, these by trained weight
  WeightStore constants;             // besides the network's weights: what gradients need, states at first
};

// Of a step's output.
inline constexpr std::string_view losses_name = "losses";
TensorType losses_type();  // f32[1]

struct StepGraph {
  Graph graph;  // its output `losses` is f32[1]: a micro-batch's loss, the mean over its samples
  StepNodes nodes;
};

// The loss is of the first output, and a micro-batch's share of it: its mean over all samples of the step.
// A weight is trained if it is f32, has more than one element (scalars are constants of a formula), is not among the
// constants, and the loss depends on it. Errors: with_loss's and differentiate's; nothing to train.
Result<StepGraph> step_graph(const Graph& network, const TrainingOptions& options);

}  // namespace nlsplit::inline graph
