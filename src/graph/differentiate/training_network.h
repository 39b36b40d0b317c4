// The network as a training step computes it: other operators where training differs from inference. Nodes keep their
// numbers and names, so that a plan cuts both alike; values are numbered anew.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// By which mean and variance a BatchNormalization normalizes in training: those it is given, which stay as they are; or
// those of the micro-batch's samples (Ioffe and Szegedy, ICML 2015, algorithm 1), which those given follow as moving
// means, as PyTorch's BatchNorm2d in train(): r += momentum (batch's - r), the variance that of a sample (n - 1).
enum class BatchNorm : uint8_t { frozen, batch };
inline constexpr double usual_batch_norm_momentum = 0.1;  // PyTorch's

// Of a node that normalizes by its samples: the weights that follow the batch's, and the node's results.
struct BatchStatistics {
  size_t node = 0;
  ValueId mean, variance, batch_mean, batch_variance;  // the batch's variance is that of the population (n)
  int64_t count = 0;                                   // values of a channel in a micro-batch
};

struct TrainingNetwork {
  Graph graph;
  std::vector<BatchStatistics> statistics;  // by node
  ValueId steps;                            // a state: the number of steps done; none: nothing drops
};

// Of the step's inputs, with dropout only: i64[samples], the number of each sample in the step. So dropout is the same
// wherever a sample is computed.
inline constexpr std::string_view samples_name = "samples";

// Error: a BatchNormalization that is to normalize by its samples has one value a channel, which has no variance. The
// network is at the size of a micro-batch.
Status check_statistics(const Graph& network, BatchNorm batch_norm);

// seed: of dropout. constants: is told of the state's start. Errors: check_statistics'; a mean or variance that is no
// weight, or another BatchNormalization's too; a Dropout of something without an axis of samples; a value of the
// network that is called samples or steps beside a Dropout; a fused node.
Result<TrainingNetwork> training_network(const Graph& network, BatchNorm batch_norm, uint64_t seed,
                                         WeightStore& constants);

}  // namespace nlsplit::inline graph
