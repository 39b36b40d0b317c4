// The passes, one file each (pass_NAME.cc). passes.cc orders them.
#pragma once

#include "graph/ops.h"
#include "graph/passes.h"

namespace nlsplit {

Result<Graph> remove_identity(const Graph& graph, WeightStore& weights);
Result<Graph> fold_batch_norm(const Graph& graph, WeightStore& weights);
Result<Graph> fuse_bias(const Graph& graph, WeightStore& weights);
Result<Graph> fuse_elementwise(const Graph& graph, WeightStore& weights);
Result<Graph> remove_dead(const Graph& graph, WeightStore& weights);

}  // namespace nlsplit
