#include "graph/differentiate/differentiate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/differentiate/backward.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

class Differentiation {
 public:
  Differentiation(const Graph& forward, GraphBuilder builder, WeightStore& weights, SumPlace sums)
      : forward_(forward), graph_(std::move(builder)), backward_(graph_, weights), weights_(weights), place_(sums) {
    gradient_.resize(forward.values.size());
    depends_.assign(forward.values.size(), false);
  }

  Result<Differentiated> run(ValueId loss, const std::vector<ValueId>& trained, double seed,
                             const OnGradient& on_gradient) {
    mark(trained);
    const std::vector<std::vector<size_t>> reads = reads_of_trained(trained);
    std::vector<ValueId> last(trained.size());
    if (!depends_[loss.index()]) return invalid_input("the loss depends on none of the trained weights");
    const TensorType& type = forward_.value(loss).type;
    gradient_[loss.index()] = graph_.weight("d." + forward_.value(loss).name, type, weights_.add_fill(type, seed));
    Differentiated result;
    for (size_t n = 0; n < forward_.nodes.size(); ++n) result.origins.push_back(n);
    for (size_t n = forward_.nodes.size(); n-- > 0;) {
      RETURN_IF_ERROR(go_back(forward_.nodes[n]));
      for (const size_t t : reads[n]) {
        ValueId& gradient = gradient_[trained[t].index()];
        if (!gradient.valid()) continue;
        last[t] = gradient;
        if (!on_gradient) continue;
        RETURN_IF_ERROR(on_gradient(graph_, t, gradient));
        gradient = ValueId();  // the next node's is another part
      }
      result.origins.resize(graph_.graph().nodes.size(), n);
    }
    for (const auto& [node, maker] : at_makers_) result.origins[node] = maker;
    for (size_t t = 0; t < trained.size(); ++t) {
      if (!last[t].valid())
        return invalid_input(fmt::format("the loss does not depend on weight {}", forward_.value(trained[t]).name));
      result.gradients.push_back(last[t]);
      graph_.output(last[t]);
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
      for (const ValueId output : node.outputs)
        depends_[output.index()] = any && follows_its_inputs(node, forward_.value(output));
    }
  }

  // [node of the forward graph]: the trained weights, by index, that it reads.
  std::vector<std::vector<size_t>> reads_of_trained(const std::vector<ValueId>& trained) const {
    std::vector<int64_t> number(forward_.values.size(), -1);
    for (size_t t = 0; t < trained.size(); ++t) number[trained[t].index()] = static_cast<int64_t>(t);
    std::vector<std::vector<size_t>> weights(forward_.nodes.size());
    for (size_t n = 0; n < forward_.nodes.size(); ++n) {
      for (const ValueId input : forward_.nodes[n].inputs) {
        if (!input.valid() || number[input.index()] < 0) continue;
        const auto t = static_cast<size_t>(number[input.index()]);
        if (std::ranges::find(weights[n], t) == weights[n].end()) weights[n].push_back(t);
      }
    }
    return weights;
  }

  Status go_back(const Node& node) {
    std::vector<ValueId> dy;
    std::vector<bool> wanted;
    for (const ValueId output : node.outputs) dy.push_back(gradient_[output.index()]);
    for (const ValueId input : node.inputs) wanted.push_back(input.valid() && depends_[input.index()]);
    const auto valid = [](ValueId value) { return value.valid(); };
    if (std::ranges::none_of(dy, valid) || std::ranges::find(wanted, true) == wanted.end()) return ok_status();
    const auto rule = info(node.op).gradient.rule;
    if (rule == nullptr && info(node.op).gradient.none == NoGradient::of_a_choice)
      return unsupported(fmt::format("node {}: there is no gradient of {} yet", node.name, name_of(node.op)));
    if (rule == nullptr)
      return unsupported(
          fmt::format("node {}: {} is of a training step and not differentiated again", node.name, name_of(node.op)));
    if (!node.epilogue.empty()) return unsupported(fmt::format("node {}: no gradient of a fused node", node.name));
    backward_.begin(node, std::move(dy), wanted);
    rule(backward_);
    if (!backward_.status().ok()) {
      Error why = backward_.status().error();
      why.message = fmt::format("the gradient of node {}: {}", node.name, why.message);
      return why;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!wanted[i]) continue;
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
      const Value& of = forward_.value(value);
      if (place_ == SumPlace::maker && of.kind == ValueKind::node)
        at_makers_.emplace_back(graph_.graph().nodes.size() - 1, of.producer.index());
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
      const bool back = std::ranges::any_of(node.outputs, [&](ValueId output) { return leads_back[output.index()]; });
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
  SumPlace place_;
  std::vector<std::pair<size_t, size_t>> at_makers_;  // an Add, and the forward node it is to be with
  int sums_ = 0;
};

}  // namespace

bool follows_its_inputs(const Node& node, const Value& output) {
  const Gradient& gradient = info(node.op).gradient;
  return is_real(output.type.dtype) && (gradient.rule != nullptr || gradient.none != NoGradient::flat);
}

Result<Differentiated> differentiate(const Graph& graph, ValueId loss, const std::vector<ValueId>& trained,
                                     WeightStore& weights, double seed, const OnGradient& on_gradient, SumPlace sums) {
  if (element_count(graph.value(loss).type.shape) != 1)
    return invalid_input(
        fmt::format("the loss {} is {}, not one number", graph.value(loss).name, to_string(graph.value(loss).type)));
  for (const ValueId weight : trained) {
    const Value& value = graph.value(weight);
    if (value.kind != ValueKind::weight) return invalid_input(fmt::format("{} is not a weight", value.name));
    if (!is_real(value.type.dtype))
      return invalid_input(
          fmt::format("weight {} is {}: only floats have gradients", value.name, to_string(value.type)));
  }
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(graph));
  return Differentiation(graph, std::move(builder), weights, sums).run(loss, trained, seed, on_gradient);
}

}  // namespace nlsplit::inline graph
