#include "graph/pass_list.h"
#include "graph/rewrite.h"

namespace nlsplit {
namespace {

// The Conv in front of a BatchNormalization that can take it in: nobody else reads it, and all parameters are
// constants.
Node* foldable(Graph& graph, const Node& norm, const std::vector<int>& uses) {
  const Value& input = graph.value(norm.inputs[0]);
  if (input.kind != ValueKind::node || uses[norm.inputs[0].index()] != 1) return nullptr;
  Node& conv = graph.nodes[input.producer.index()];
  if (conv.op != Op::Conv || !conv.epilogue.empty()) return nullptr;
  if (graph.value(norm.inputs[1]).type.dtype != DType::f32) return nullptr;  // derived weights are f32
  const auto constant = [&](const std::vector<ValueId>& values) {
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i].valid() && graph.value(values[i]).kind != ValueKind::weight) return false;
    }
    return true;
  };
  return constant(conv.inputs) && constant(norm.inputs) ? &conv : nullptr;
}

ValueId add_weight(Graph& graph, std::string name, TensorType type, ContentId content) {
  graph.values.push_back({std::move(name), std::move(type), ValueKind::weight, {}, content});
  return ValueId(graph.values.size() - 1);
}

}  // namespace

// BatchNorm(Conv(x, w, b)) = Conv(x, w * s, (b - mean) * s + bias) with s = scale / sqrt(var + eps), channel by
// channel. Ioffe and Szegedy, "Batch Normalization", 2015, section 3.1, for inference.
Result<Graph> fold_batch_norm(const Graph& graph, WeightStore& weights) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node norm = out.nodes[i];
    if (norm.op != Op::BatchNormalization || !norm.epilogue.empty()) continue;
    Node* conv = foldable(out, norm, uses);
    if (conv == nullptr) continue;
    const double epsilon = attr_float(norm.attrs, "epsilon");
    const auto content = [&](ValueId id) { return out.value(id).content; };
    const ValueId w = conv->inputs[1];
    const TensorType weight_type = out.value(w).type, bias_type = out.value(norm.inputs[1]).type;
    const ContentId folded_weight = weights.add_derived(
        Derivation::bn_weight, {content(w), content(norm.inputs[1]), content(norm.inputs[4])}, epsilon, weight_type);
    std::vector<ContentId> parts;
    if (conv->inputs.size() > 2 && conv->inputs[2].valid()) parts.push_back(content(conv->inputs[2]));
    for (size_t p = 1; p <= 4; ++p) parts.push_back(content(norm.inputs[p]));
    const ContentId folded_bias = weights.add_derived(Derivation::bn_bias, std::move(parts), epsilon, bias_type);
    const ValueId new_weight = add_weight(out, norm.name + ".folded_weight", weight_type, folded_weight);
    const ValueId new_bias = add_weight(out, norm.name + ".folded_bias", bias_type, folded_bias);
    conv->inputs = {conv->inputs[0], new_weight, new_bias};
    conv->outputs = norm.outputs;
    out.values[norm.outputs[0].index()].producer = out.value(norm.inputs[0]).producer;
    removed[i] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit
