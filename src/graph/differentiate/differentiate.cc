#include "graph/differentiate/differentiate.h"

#include <fmt/format.h>

#include <utility>

#include "graph/differentiate/backward.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

class Differentiation {
 public:
  Differentiation(const Graph& forward, GraphBuilder builder, WeightStore& weights)
      : forward_(forward), graph_(std::move(builder)), backward_(graph_, weights), weights_(weights) {
    gradient_.resize(forward.values.size());
    depends_.assign(forward.values.size(), false);
  }

  Result<Differentiated> run(ValueId loss, const std::vector<ValueId>& trained, double seed) {
    mark(trained);
    if (!depends_[loss.index()]) return invalid_input("the loss depends on none of the trained weights");
    const TensorType& type = forward_.value(loss).type;
    gradient_[loss.index()] = graph_.weight("d." + forward_.value(loss).name, type, weights_.add_fill(type, seed));
    Differentiated result;
    for (size_t n = 0; n < forward_.nodes.size(); ++n) result.origins.push_back(n);
    for (size_t n = forward_.nodes.size(); n-- > 0;) {
      RETURN_IF_ERROR(go_back(forward_.nodes[n]));
      result.origins.resize(graph_.graph().nodes.size(), n);
    }
    for (const ValueId weight : trained) {
      const ValueId gradient = gradient_[weight.index()];
      if (!gradient.valid())
        return invalid_input(fmt::format("the loss does not depend on weight {}", forward_.value(weight).name));
      result.gradients.push_back(gradient);
      graph_.output(gradient);
    }
    result.graph = std::move(graph_).finish();
    result.phases = phases_of(result.graph);
    return result;
  }

 private:
  // Which values change with a trained weight.
  void mark(const std::vector<ValueId>& trained) {
    for (const ValueId weight : trained) depends_[weight.index()] = true;
    for (const Node& node : forward_.nodes) {
      bool any = false;
      for (const ValueId input : node.inputs) any = any || (input.valid() && depends_[input.index()]);
      for (const ValueId output : node.outputs) depends_[output.index()] = any;
    }
  }

  Status go_back(const Node& node) {
    const ValueId dy = gradient_[node.outputs[0].index()];
    uint64_t wanted = 0;
    for (size_t i = 0; i < node.inputs.size() && i < 64; ++i) {
      if (node.inputs[i].valid() && depends_[node.inputs[i].index()]) wanted |= uint64_t{1} << i;
    }
    if (!dy.valid() || wanted == 0) return ok_status();
    const auto rule = info(node.op).gradient;
    if (rule == nullptr || node.outputs.size() != 1 || !node.epilogue.empty())
      return unsupported(fmt::format("node {}: no gradient of {} is known", node.name, name_of(node.op)));
    backward_.begin(node, dy, wanted);
    rule(backward_);
    if (!backward_.status().ok()) {
      Error why = backward_.status().error();
      why.message = fmt::format("the gradient of node {}: {}", node.name, why.message);
      return why;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if ((wanted >> i & 1) == 0) continue;
      CHECK(backward_.given()[i].valid(), "a rule gives what is wanted");
      RETURN_IF_ERROR(add_to(node.inputs[i], backward_.given()[i]));
    }
    return ok_status();
  }

  Status add_to(ValueId value, ValueId gradient) {
    ValueId& sum = gradient_[value.index()];
    if (sum.valid()) {
      ASSIGN_OR_RETURN(gradient, graph_.add(Op::Add, fmt::format("d.{}.sum{}", forward_.value(value).name, sums_++),
                                            {sum, gradient}, {}));
    }
    sum = gradient;
    return ok_status();
  }

  std::vector<NodePhase> phases_of(const Graph& graph) const {
    std::vector<bool> leads_back(graph.values.size(), false);  // to the gradient of an activation
    for (size_t v = 0; v < gradient_.size(); ++v) {
      if (gradient_[v].valid() && forward_.values[v].kind != ValueKind::weight) leads_back[gradient_[v].index()] = true;
    }
    std::vector<NodePhase> phases(graph.nodes.size(), NodePhase::forward);
    for (size_t n = graph.nodes.size(); n-- > forward_.nodes.size();) {
      const Node& node = graph.nodes[n];
      const bool back = leads_back[node.outputs[0].index()];
      phases[n] = back ? NodePhase::input : NodePhase::weight;
      for (const ValueId input : node.inputs) {
        if (back && input.valid()) leads_back[input.index()] = true;
      }
    }
    return phases;
  }

  const Graph& forward_;
  GraphBuilder graph_;
  Backward backward_;
  WeightStore& weights_;
  std::vector<ValueId> gradient_;  // [value of the forward graph]
  std::vector<bool> depends_;
  int sums_ = 0;
};

}  // namespace

Result<Differentiated> differentiate(const Graph& graph, ValueId loss, const std::vector<ValueId>& trained,
                                     WeightStore& weights, double seed) {
  if (element_count(graph.value(loss).type.shape) != 1)
    return invalid_input(
        fmt::format("the loss {} is {}, not one number", graph.value(loss).name, to_string(graph.value(loss).type)));
  for (const ValueId weight : trained) {
    if (graph.value(weight).kind != ValueKind::weight)
      return invalid_input(fmt::format("{} is no weight", graph.value(weight).name));
  }
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(graph));
  return Differentiation(graph, std::move(builder), weights).run(loss, trained, seed);
}

}  // namespace nlsplit::inline graph
