// Semantic passes: Graph in, Graph out, each verified afterwards. passes.cc holds the one ordered list.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

enum class Purpose : uint8_t { inference, training };

struct Pass {
  std::string_view name;
  std::string_view what;                                           // one sentence
  Result<Graph> (*run)(const Graph& graph, WeightStore& weights);  // may add derived weights
  bool in_training = true;                                         // false: the gradients need what it takes away
};

std::span<const Pass> all_passes();  // in the order they run

// Some of them, for experiments: names separated by commas, which run in the order they are named in; "all" stands for
// the whole list, "none" for no pass, and "-NAME" takes one out of what stands before it ("all,-fuse_bias").
// Error: a name that is none; the message has those that are.
Result<std::vector<Pass>> select_passes(std::string_view names);

// One after the other, each verified.
Result<Graph> run_passes(const Graph& graph, WeightStore& weights, std::span<const Pass> passes);

// All passes in order; for training those that leave every node its own gradient.
Result<Graph> optimize(const Graph& graph, WeightStore& weights, Purpose purpose = Purpose::inference);

// The same network for another batch size: axis 0 of every input and state becomes `batch`, all types are inferred
// again, and a Reshape that wrote the old batch down literally follows. Error: an operator mixes samples (it is named),
// inputs disagree on the batch.
Result<Graph> with_batch(const Graph& graph, int64_t batch);

// Which values carry one sample per index of axis 0, given that the inputs do. Error: the first node that mixes
// samples.
Result<std::vector<bool>> batched_values(const Graph& graph);

}  // namespace nlsplit::inline graph
