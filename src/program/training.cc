#include "program/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace nlsplit {
namespace {

constexpr size_t most_inputs = 64;  // a mask has bits for

class Planner {
 public:
  Planner(const Graph& graph, const std::vector<ValueId>& root, const TrainingOptions& options)
      : g_(graph), root_(root) {
    training_.options = options;
    training_.trained.assign(g_.values.size(), false);
    training_.has_gradient.assign(g_.values.size(), false);
    training_.input_gradients.resize(g_.nodes.size());
    training_.weight_gradients.resize(g_.nodes.size());
  }

  Result<Training> run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) RETURN_IF_ERROR(follow(n));
    for (const ValueId output : g_.outputs) {
      const ValueId root = root_[output.index()];
      const bool known = std::ranges::any_of(training_.losses, [&](ValueId v) { return root_[v.index()] == root; });
      if (training_.has_gradient[root.index()] && !known) training_.losses.push_back(output);
    }
    prune();
    if (training_.losses.empty()) return invalid_input("there is nothing to train: no output depends on a weight");
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (is_view(g_.nodes[n].op)) continue;
      describe_gradient(n, training_.input_gradients, same_input_);
      describe_gradient(n, training_.weight_gradients, same_weight_);
    }
    return std::move(training_);
  }

 private:
  const Value& root_of(ValueId value) const { return g_.value(root_[value.index()]); }

  Error no_gradient(const Node& node, const std::string& why) const {
    return unsupported(fmt::format("node {} ({}) cannot be trained: {}", node.name, name_of(node.op), why));
  }

  // Which of the node's inputs are to have a gradient, and so whether its output has one.
  Status follow(size_t n) {
    const Node& node = g_.nodes[n];
    if (node.inputs.size() > most_inputs) return no_gradient(node, "it has too many operands");
    if (is_view(node.op)) {
      training_.has_gradient[node.outputs[0].index()] = training_.has_gradient[root_[node.outputs[0].index()].index()];
      return ok_status();
    }
    types_ = input_types(g_, node);
    const std::vector<TensorType> outputs = output_types(node);
    uint64_t by_inputs = 0, by_weights = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].valid()) continue;
      const Value& root = root_of(node.inputs[i]);
      const uint64_t bit = uint64_t{1} << i;
      if (root.kind == ValueKind::weight) {
        if (root.type.dtype != DType::f32 || element_count(root.type.shape) <= 1) continue;
        if (training_.options.constants.contains(root.content)) continue;
        if (info(node.op).gradient == nullptr) return no_gradient(node, known_none(node));
        const auto gradient = gradient_of(node.op, {types_, outputs, node.attrs, bit});
        if (!gradient) continue;  // statistics that are given, say
        training_.trained[root_[node.inputs[i].index()].index()] = true;
        by_weights |= bit;
      } else if (training_.has_gradient[root_[node.inputs[i].index()].index()]) {
        by_inputs |= bit;
      }
    }
    if ((by_inputs | by_weights) == 0) return ok_status();
    if (!node.epilogue.empty()) return no_gradient(node, "it is fused with the steps behind it");
    if (node.outputs.size() != 1) return no_gradient(node, "it has several results");
    for (const uint64_t by : {by_inputs, by_weights}) {
      if (by == 0) continue;
      const auto gradient = gradient_of(node.op, {types_, outputs, node.attrs, by});
      if (!gradient) return no_gradient(node, gradient.error().message);
    }
    training_.input_gradients[n].by = by_inputs;
    training_.weight_gradients[n].by = by_weights;
    training_.has_gradient[node.outputs[0].index()] = true;
    return ok_status();
  }

  // What no loss depends on has no gradient.
  void prune() {
    std::vector<bool> wanted(g_.values.size(), false);
    for (const ValueId loss : training_.losses) wanted[root_[loss.index()].index()] = true;
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      if (is_view(node.op) || !training_.has_gradient[node.outputs[0].index()]) continue;
      if (!wanted[node.outputs[0].index()]) {
        training_.has_gradient[node.outputs[0].index()] = false;
        training_.input_gradients[n].by = training_.weight_gradients[n].by = 0;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if ((training_.input_gradients[n].by >> i & 1) != 0) wanted[root_[node.inputs[i].index()].index()] = true;
      }
    }
  }

  static std::string known_none(const Node& node) {
    return fmt::format("no gradient of {} is known", name_of(node.op));
  }

  std::vector<TensorType> output_types(const Node& node) const {
    std::vector<TensorType> types;
    for (const ValueId output : node.outputs) types.push_back(g_.value(output).type);
    return types;
  }

  void describe_gradient(size_t n, std::vector<NodeGradient>& parts, std::unordered_map<std::string, size_t>& same) {
    NodeGradient& part = parts[n];
    part.same_as = n;
    if (part.by == 0) return;
    const Node& node = g_.nodes[n];
    types_ = input_types(g_, node);
    const std::vector<TensorType> outputs = output_types(node);
    part.passes = gradient_of(node.op, {types_, outputs, node.attrs, part.by})->passes;
    if (!part.computes()) return;
    part.desc = gradient_desc(describe(g_, node), part.by & ~part.passes);
    const Gradient gradient = gradient_of(part.desc);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if ((part.desc.gradient_by >> i & 1) != 0) part.writes.push_back(node.inputs[i]);
      if ((gradient.keeps_inputs >> i & 1) != 0) part.keeps.push_back(node.inputs[i]);
    }
    if (gradient.keeps_output) part.keeps.push_back(node.outputs[0]);
    part.same_as = same.try_emplace(signature(part.desc), n).first->second;
  }

  const Graph& g_;
  const std::vector<ValueId>& root_;
  Training training_;
  std::vector<TensorType> types_;
  std::unordered_map<std::string, size_t> same_input_, same_weight_;
};

}  // namespace

Result<Training> plan_training(const Graph& graph, const std::vector<ValueId>& root, const TrainingOptions& options) {
  return Planner(graph, root, options).run();
}

}  // namespace nlsplit
