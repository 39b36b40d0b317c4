#include <algorithm>
#include <cstring>

#include "graph/passes/pass_list.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// The Conv alone reads the norm; all parameters are constants.
bool can_take(const Graph& graph, const Node& conv, const std::vector<int>& uses) {
  if (conv.op != Op::Conv || !conv.epilogue.empty()) return false;
  const Value& input = graph.value(conv.inputs[0]);
  if (input.kind != ValueKind::node || uses[conv.inputs[0].index()] != 1 || input.type.dtype != DType::f32)
    return false;
  const Node& norm = graph.node(input.producer);
  return norm.op == Op::BatchNormalization && norm.epilogue.empty() && has_constant_parameters(graph, conv) &&
         has_constant_parameters(graph, norm);
}

// What is padded is what the norm makes: zeros there are no zeros before it, unless it shifts nothing.
bool is_padded(const Node& conv) {
  return std::ranges::any_of(attr_ints(conv.attrs, "pads"), [](int64_t pad) { return pad != 0; });
}

bool is_zero(const WeightStore& weights, ContentId content) {
  const auto raw = weights.materialise(content);
  if (!raw.ok()) return false;
  std::vector<float> values(raw->size() / sizeof(float));
  std::memcpy(values.data(), raw->data(), raw->size());
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

}  // namespace

// Conv(BatchNorm(x), w, b) = Conv(x, w * s, b + the sum of w * t over all that a filter sees) with s = scale / sqrt(var
// + eps) and t = bias - mean * s, an input channel each.
Result<Graph> fold_batch_norm_ahead(const Graph& graph, WeightStore& weights) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (Node& conv : out.nodes) {
    if (!can_take(out, conv, uses)) continue;
    const NodeId producer = out.value(conv.inputs[0]).producer;
    const Node& norm = out.node(producer);
    const double epsilon = attr_float(norm.attrs, "epsilon");
    const auto parameter = [&](size_t i) { return out.value(norm.inputs[i]).content; };
    const TensorType channels = out.value(norm.inputs[1]).type, weight_type = out.value(conv.inputs[1]).type;
    const ContentId shift = weights.add_derived(
        Derivation::bn_bias, {parameter(1), parameter(2), parameter(3), parameter(4)}, epsilon, channels);
    if (is_padded(conv) && !is_zero(weights, shift)) continue;
    const ContentId scale = weights.add_derived(Derivation::bn_scale, {parameter(1), parameter(4)}, epsilon, channels);
    const ContentId w = out.value(conv.inputs[1]).content;
    const TensorType bias_type{DType::f32, {weight_type.shape[0]}};
    ContentId bias =
        weights.add_derived(Derivation::row_sums,
                            {weights.add_derived(Derivation::scale_inputs, {w, shift}, 0, weight_type)}, 0, bias_type);
    if (conv.inputs.size() > 2 && conv.inputs[2].valid())
      bias = weights.add_derived(Derivation::add, {out.value(conv.inputs[2]).content, bias}, 0, bias_type);
    const ContentId folded = weights.add_derived(Derivation::scale_inputs, {w, scale}, 0, weight_type);
    const std::string name = norm.name;
    const ValueId x = norm.inputs[0];
    const ValueId new_weight = add_weight(out, name + ".folded_weight", weight_type, folded);
    const ValueId new_bias = add_weight(out, name + ".folded_bias", bias_type, bias);
    conv.inputs = {x, new_weight, new_bias};
    removed[producer.index()] = true;
  }
  return compacted(out, removed);
}

}  // namespace nlsplit::inline graph
