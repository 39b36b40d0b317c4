// Simulates one micro-batch in the shards of a stage: each computes its parts in order, as soon as the pieces from the
// other shards are there. In training also the backward pass, from the last node to the first: gradients of received
// pieces return to their senders, and a node's weight gradient follows its input gradient.
#pragma once

#include <vector>

#include "partition/network.h"
#include "partition/split_load.h"
#include "partition/split_parts.h"

namespace nlsplit::inline partition {

// [node], of a device; all but `forward` of training alone.
struct ShardSeconds {
  const std::vector<double>* forward = nullptr;
  const std::vector<double>* inputs = nullptr;
  const std::vector<double>* weights = nullptr;
  const std::vector<double>* updates = nullptr;
};

// links: [from * shards + to]; seconds: [shard].
SplitLoad play_group(const Graph& graph, const SplitParts& parts, const Stage& stage, DType messages,
                     const std::vector<const Path*>& links, const std::vector<ShardSeconds>& seconds);

}  // namespace nlsplit::inline partition
