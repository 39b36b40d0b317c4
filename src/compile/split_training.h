// What pass `split` does in training. The network is expanded like one for inference, and then differentiated, so that
// gradients of pieces and their exchange are nodes like others. A weight that one shard has a part of is trained as
// that part (Buffer::part); one that several shards read whole as if it were tied: each adds the gradients of all.
#pragma once

#include <vector>

#include "compile/kernel_graph.h"
#include "partition/expand.h"
#include "program/saved.h"

namespace nlsplit::inline compiler {

// Of a network that is to be trained under a plan with splits. Errors: dropout, or statistics of micro-batches,
// wherever they are: pieces would drop, and normalize by, other elements than the unsplit network. ZeRO: shards update
// what they read whole, each by itself. Exact sums of gradients.
Status check_split_training(const Graph& network, BatchNorm batch_norm, int zero, bool exact);

// The network with the output that the loss is of, and no other. That of the cross-entropy leaves out a Softmax at the
// end, which it would not find behind the pieces of one.
Graph up_to_loss(const Graph& network, Loss loss);

// Gradients are added where their value is made. Slices of constants are constants, parts of weights are trained.
void set_for_shards(TrainingOptions& options, const Expanded& expanded);

// KernelGraph::states that the caller gave for the whole network, in the expanded one.
std::vector<ValueId> states_of_shards(const KernelGraph& whole, const Expanded& expanded);

// Of the states of an expanded graph. Error: parts of a changed weight overlap, or are not all of it.
Result<StateParts> parts_of_states(const KernelGraph& kernels, const std::vector<WeightPart>& weights);

Promise promise_of_split_training(DType coarsest);

}  // namespace nlsplit::inline compiler
