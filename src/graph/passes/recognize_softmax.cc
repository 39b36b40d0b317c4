#include "graph/passes/pass_list.h"
#include "graph/passes/pattern.h"

namespace nlsplit::inline graph {
namespace {

// Along one axis that stays with extent 1.
std::optional<int64_t> only_axis(const Node& reduction) {
  const std::vector<int64_t>& axes = attr_ints(reduction.attrs, "axes");
  if (axes.size() != 1 || attr_int(reduction.attrs, "keepdims") == 0) return std::nullopt;
  return axes[0];
}

}  // namespace

// e / ReduceSum(e) with e = Exp(x - ReduceMax(x)). Without the maximum it is another function: one that overflows.
Result<Graph> recognize_softmax(const Graph& graph, WeightStore& weights) {
  const Pattern pattern(graph, weights);
  Recognized out(graph);
  for (const Node& quotient : graph.nodes) {
    if (quotient.op != Op::Div || !quotient.epilogue.empty()) continue;
    const Node* exp = pattern.made_by(quotient.inputs[0], Op::Exp);
    const Node* sum = pattern.made_for_one(quotient.inputs[1], Op::ReduceSum);
    if (exp == nullptr || sum == nullptr || sum->inputs[0] != exp->outputs[0] || pattern.uses(exp->outputs[0]) != 2)
      continue;
    const Node* apart = pattern.made_for_one(exp->inputs[0], Op::Sub);
    const Node* largest = apart != nullptr ? pattern.made_for_one(apart->inputs[1], Op::ReduceMax) : nullptr;
    if (largest == nullptr || largest->inputs[0] != apart->inputs[0]) continue;
    const auto axis = only_axis(*sum);
    if (!axis || only_axis(*largest) != axis) continue;
    const ValueId x = apart->inputs[0];
    if (graph.value(x).type.dtype != DType::f32) continue;  // others are rounded after every part
    Node softmax;
    softmax.op = Op::Softmax;
    softmax.inputs = {x};
    set_attr(softmax.attrs, "axis", *axis);
    out.replace(quotient, std::move(softmax), {exp, sum, apart, largest});
  }
  return out.done();
}

}  // namespace nlsplit::inline graph
