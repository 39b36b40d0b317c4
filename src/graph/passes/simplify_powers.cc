#include "graph/passes/pass_list.h"
#include "graph/passes/pattern.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline graph {
namespace {

// The exponent, of a power of real numbers whose result is shaped as its base; none: it is no such number.
std::optional<double> exponent_of(const Pattern& pattern, const Node& node) {
  if (node.op != Op::Pow) return std::nullopt;
  const TensorType &base = pattern.graph().value(node.inputs[0]).type,
                   &result = pattern.graph().value(node.outputs[0]).type;
  if (base != result || !is_real(base.dtype)) return std::nullopt;
  return pattern.number(node.inputs[1]);
}

// Rounded after the square, which a half would notice.
bool can_be_cubed(DType type) { return type == DType::f32 || type == DType::f64; }

ValueId squared(Graph& graph, const Node& cube) {
  Value value = graph.value(cube.outputs[0]);
  value.name = unused_name(graph, value.name + ".square");
  value.producer = NodeId(graph.nodes.size());
  const ValueId square(graph.values.size());
  graph.values.push_back(value);
  Node node;
  node.op = Op::Mul;
  node.name = cube.name + " squared";
  node.inputs = {cube.inputs[0], cube.inputs[0]};
  node.outputs = {square};
  graph.nodes.push_back(std::move(node));
  return square;
}

}  // namespace

// Squares and inverses are rounded as the power is. Of a square root that is not so: it is of no negative infinity.
Result<Graph> simplify_powers(const Graph& graph, WeightStore& weights) {
  const Pattern pattern(graph, weights);
  Graph out = graph;
  out.nodes.clear();
  for (const Node& node : graph.nodes) {
    Node made = node;
    const std::optional<double> exponent = exponent_of(pattern, node);
    const ValueId x = node.inputs.empty() ? ValueId() : node.inputs[0];
    if (exponent == 2) {
      made.op = Op::Mul, made.inputs = {x, x};
    } else if (exponent == 3 && can_be_cubed(graph.value(x).type.dtype)) {
      made.op = Op::Mul, made.inputs = {squared(out, node), x};
    } else if (exponent == -1) {
      made.op = Op::Reciprocal, made.inputs = {x};
    }
    for (const ValueId output : made.outputs) out.values[output.index()].producer = NodeId(out.nodes.size());
    out.nodes.push_back(std::move(made));
  }
  return compacted(out, std::vector<bool>(out.nodes.size(), false));
}

}  // namespace nlsplit::inline graph
