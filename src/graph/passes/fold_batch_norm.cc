#include <algorithm>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// A factor for each output channel goes into the rows of a weight, or into its second axis.
bool has_a_row_each(const Graph& graph, const Node& node) {
  return info(node.op).product(input_types(graph, node), node.attrs).weight_columns == 0;
}

bool adds_a_bias(const Graph& graph, const Node& node) {
  if (info(node.op).product == nullptr || node.op == Op::MatMul) return false;
  if (node.op != Op::Gemm) return true;
  const bool biased = node.inputs.size() > 2 && node.inputs[2].valid();
  const Shape channels{graph.value(node.outputs[0]).type.shape[1]};
  return attr_float(node.attrs, "alpha") == 1 &&
         (!biased || (attr_float(node.attrs, "beta") == 1 && graph.value(node.inputs[2]).type.shape == channels));
}

// The node before a BatchNormalization that it can be folded into: it has no other reader, and all parameters are
// constants.
Node* foldable(Graph& graph, const Node& norm, const std::vector<int>& uses) {
  const Value& input = graph.value(norm.inputs[0]);
  if (input.kind != ValueKind::node || uses[norm.inputs[0].index()] != 1) return nullptr;
  Node& node = graph.nodes[input.producer.index()];
  if (!adds_a_bias(graph, node) || !node.epilogue.empty()) return nullptr;
  const auto other = [&](ValueId id) { return id.valid() && graph.value(id).type.dtype != DType::f32; };
  if (other(norm.inputs[1]) || std::ranges::any_of(node.inputs, other)) return nullptr;  // derived weights are f32
  return has_constant_parameters(graph, node) && has_constant_parameters(graph, norm) ? &node : nullptr;
}

}  // namespace

// BatchNorm(Conv(x, w, b)) = Conv(x, w * s, (b - mean) * s + bias) with s = scale / sqrt(var + eps), channel by
// channel. Ioffe and Szegedy, "Batch Normalization", 2015, section 3.1, for inference. A ConvTranspose and a Gemm are
// as linear.
Result<Graph> fold_batch_norm(const Graph& graph, WeightStore& weights) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node norm = out.nodes[i];
    if (norm.op != Op::BatchNormalization || !norm.epilogue.empty()) continue;
    Node* node = foldable(out, norm, uses);
    if (node == nullptr) continue;
    const double epsilon = attr_float(norm.attrs, "epsilon");
    const auto content = [&](ValueId id) { return out.value(id).content; };
    const ContentId w = content(node->inputs[1]), scale = content(norm.inputs[1]), variance = content(norm.inputs[4]);
    constexpr int64_t most_reads = 1000;  // a weight of weights of weights …: materialise() goes down all of them
    if (weights.reads(w) > most_reads) continue;
    const TensorType weight_type = out.value(node->inputs[1]).type, bias_type = out.value(norm.inputs[1]).type;
    const ContentId folded_weight =
        has_a_row_each(out, *node)
            ? weights.add_derived(Derivation::bn_weight, {w, scale, variance}, epsilon, weight_type)
            : weights.add_derived(Derivation::scale_inputs,
                                  {w, weights.add_derived(Derivation::bn_scale, {scale, variance}, epsilon, bias_type)},
                                  0, weight_type);
    std::vector<ContentId> parts;
    if (node->inputs.size() > 2 && node->inputs[2].valid()) parts.push_back(content(node->inputs[2]));
    for (size_t p = 1; p <= 4; ++p) parts.push_back(content(norm.inputs[p]));
    const ContentId folded_bias = weights.add_derived(Derivation::bn_bias, std::move(parts), epsilon, bias_type);
    const ValueId new_weight = add_weight(out, norm.name + ".folded_weight", weight_type, folded_weight);
    const ValueId new_bias = add_weight(out, norm.name + ".folded_bias", bias_type, folded_bias);
    node->inputs = {node->inputs[0], new_weight, new_bias};
    if (node->op == Op::Gemm) set_attr(node->attrs, "beta", 1.0);
    node->outputs = norm.outputs;
    out.values[norm.outputs[0].index()].producer = out.value(norm.inputs[0]).producer;
    removed[i] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
