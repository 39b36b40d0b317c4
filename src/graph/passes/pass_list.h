// The passes, one file each (NAME.cc). passes.cc orders them.
#pragma once

#include "graph/operators/operator.h"
#include "graph/passes/passes.h"

namespace nlsplit::inline graph {

Result<Graph> remove_dropout(const Graph& graph, WeightStore& weights);
Result<Graph> remove_identity(const Graph& graph, WeightStore& weights);
Result<Graph> fold_constant_views(const Graph& graph, WeightStore& weights);
Result<Graph> merge_pairs(const Graph& graph, WeightStore& weights);
Result<Graph> merge_common(const Graph& graph, WeightStore& weights);
Result<Graph> recognize_layer_norm(const Graph& graph, WeightStore& weights);
Result<Graph> recognize_softmax(const Graph& graph, WeightStore& weights);
Result<Graph> recognize_attention(const Graph& graph, WeightStore& weights);
Result<Graph> recognize_gelu(const Graph& graph, WeightStore& weights);
Result<Graph> simplify_powers(const Graph& graph, WeightStore& weights);
Result<Graph> sink_transposes(const Graph& graph, WeightStore& weights);
Result<Graph> fold_batch_norm(const Graph& graph, WeightStore& weights);
Result<Graph> fold_batch_norm_ahead(const Graph& graph, WeightStore& weights);
Result<Graph> fuse_bias(const Graph& graph, WeightStore& weights);
Result<Graph> fuse_elementwise(const Graph& graph, WeightStore& weights);
Result<Graph> remove_dead(const Graph& graph, WeightStore& weights);

}  // namespace nlsplit::inline graph
