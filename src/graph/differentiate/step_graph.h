// A training step as a graph: the network's nodes, then those of the loss, then those of the gradients
// (graph/differentiate/), each summed over the micro-batches by an Accumulate, then the step's rate, the updates of the
// weights and the count of steps. Plans cut the network; each further node is in the stage of the node it belongs to,
// but for those that every device has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/differentiate/differentiate.h"
#include "graph/differentiate/loss.h"
#include "graph/differentiate/training_network.h"
#include "graph/optimizer.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// Which stages keep only what they were given, and compute the rest again before their gradients (Chen et al., 2016).
// Each plan says it of its stages (partition/plan.h). full: all of them do, whatever the plan says. to_fit: a ranking
// says it of stages whose device has no room else.
enum class Recompute : uint8_t { none, full, to_fit };
inline constexpr std::array<std::string_view, 3> recompute_names = {"none", "full", "to_fit"};  // in their order

struct TrainingOptions {
  Optimizer optimizer = Optimizer::sgd;
  Recompute recompute = Recompute::none;
  Loss loss = Loss::softmax_cross_entropy;
  int micro_batches = 1;               // of a step
  std::set<ContentId> constants = {};  // weights that are none: masks, tables of positions (WeightStore::formulas)
  OptimizerSettings settings = {};
  BatchNorm batch_norm = BatchNorm::frozen;
  double batch_norm_momentum = usual_batch_norm_momentum;  // of moving means
  uint64_t seed = 0;                                       // of dropout
  SumPlace sums = SumPlace::readers;                       // of gradients
  std::set<std::string> parts = {};  // names of weights that are trained also if they have one element: of larger ones
  std::optional<double> clip = {};   // the largest norm of all gradients together; larger ones are scaled (ClipFactor)
};

// What a graph of a training step says of its nodes.
struct StepNodes {
  size_t network = 0;                        // nodes [0, network) are the network's
  std::vector<NodePhase> phases;             // [node]
  std::vector<size_t> origins;               // [node]: the network's node whose stage it is in; of those themselves
  std::vector<std::vector<size_t>> derived;  // [node of the network]: those of the loss and of gradients it is the
                                             // origin of, ascending
  std::vector<bool> computed;                // [node]: the loss or an update depends on it; never a view
  // Nodes of phase `step` that are in no stage: each device computes them, before its first update of a step and behind
  // its last one. Their origin is no node that means anything.
  std::vector<size_t> before_updates, behind_updates;
  // With clipping: of each trained weight's gradient its SumOfSquares, in the stage of the update; the ClipFactor of
  // all of them, in the first stage that trains: its gradients are ready last.
  std::vector<size_t> squares;
  std::optional<size_t> clip;
  std::vector<ValueId> trained;  // weights
  std::vector<ValueId> running;  // weights too: means and variances that the forward pass moves, once a micro-batch
  // Behind a MovingAverage a state holds a running mean or variance; behind an update a trained weight, what the
  // optimizer keeps of one (named state_names), or the number of steps (steps_name); behind an Accumulate the sum of a
  // gradient, which each step begins anew.
  std::vector<StateUpdate> sums;  // of gradients, flat: for each weight and each node of the network that reads it
  std::vector<std::vector<size_t>> parts;       // [trained]: its sums, from that of its last reader to the first's
  std::vector<std::vector<size_t>> of_weights;  // [trained]: nodes that add its parts, then its update. A stage that
                                                // reads the weight computes them, wherever the parts come from
  // The running ones; then by update node, these by trained weight; the number of steps is the last.
  std::vector<StateUpdate> updates;
  WeightStore constants;  // besides the network's weights: what gradients need, states at first
};

// Weights of the network that the step changes: trained and running ones.
std::vector<ValueId> changed_weights(const StepNodes& nodes);

// Of a step's outputs.
inline constexpr std::string_view losses_name = "losses";
TensorType losses_type();  // f32[1]
inline constexpr std::string_view gradient_norm_name = "gradient_norm";
TensorType gradient_norm_type();  // f32[1]

struct StepGraph {
  // Its outputs: `losses`, a micro-batch's loss, the mean over its samples; with clipping `gradient_norm`, the norm of
  // all gradients of the step together, which is made once a step.
  Graph graph;
  Graph network;  // as the step computes it (training_network.h): the graph's first nodes and values
  StepNodes nodes;
};

// The loss is of the first output, and a micro-batch's share of it: its mean over all samples of the step.
// A weight is trained if it is f32, has more than one element (scalars are constants of a formula) or is one of the
// `parts`, is not among the constants, and the loss depends on it. Errors: training_network's, with_loss's and
// differentiate's; nothing to train.
Result<StepGraph> step_graph(const Graph& network, const TrainingOptions& options);

}  // namespace nlsplit::inline graph
