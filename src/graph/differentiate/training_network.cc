#include "graph/differentiate/training_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "graph/builder.h"
#include "graph/operators/operator.h"
#include "graph/optimizer.h"

namespace nlsplit::inline graph {
namespace {

bool by_samples(const Node& node, BatchNorm batch_norm) {
  return node.op == Op::BatchNormalization && batch_norm == BatchNorm::batch;
}
int64_t values_of_channel(const TensorType& x) { return element_count(x.shape) / std::max<int64_t>(x.shape[1], 1); }

bool drops(const Node& node) { return node.op == Op::Dropout && attr_float(node.attrs, "ratio") != 0; }

// Copies the network node by node.
class TrainingCopy {
 public:
  TrainingCopy(const Graph& given, BatchNorm batch_norm, uint64_t seed, WeightStore& constants)
      : given_(given),
        builder_(given.name),
        now_(given.values.size()),
        batch_norm_(batch_norm),
        seed_(seed),
        constants_(constants) {}

  Result<TrainingNetwork> run() {
    size_t n = 0;
    for (size_t v = 0; v < given_.values.size(); ++v) {
      const Value& value = given_.values[v];
      if (value.kind == ValueKind::input)
        now_[v] = builder_.input(value.name, value.type);
      else if (value.kind == ValueKind::weight)
        now_[v] = value.state ? builder_.state(value.name, value.type)
                              : builder_.weight(value.name, value.type, value.content);
      else if (!now_[v].valid())  // a node's first result
        RETURN_IF_ERROR(add(n++));
    }
    for (const ValueId output : given_.outputs) builder_.output(now_[output.index()]);
    made_.graph = std::move(builder_).finish();
    return std::move(made_);
  }

 private:
  Status add(size_t n) {
    Node node = given_.nodes[n];
    if (!node.epilogue.empty()) return invalid_input(fmt::format("node {} is fused", node.name));
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(given_.value(output).name);
    for (ValueId& input : node.inputs) input = input.valid() ? now_[input.index()] : input;
    const bool normalizes = by_samples(node, batch_norm_);
    if (normalizes) RETURN_IF_ERROR(normalize_by_samples(n, node, names));
    if (drops(node)) RETURN_IF_ERROR(drop(n, node));
    ASSIGN_OR_RETURN(const auto results, builder_.add_all(node.op, node.name, node.inputs, node.attrs, names));
    for (size_t i = 0; i < node.outputs.size(); ++i) now_[node.outputs[i].index()] = results[i];
    if (!normalizes) return ok_status();
    made_.statistics.back().batch_mean = results[1];
    made_.statistics.back().batch_variance = results[2];
    return ok_status();
  }

  Status normalize_by_samples(size_t n, Node& node, std::vector<std::string>& names) {
    const TensorType& x = builder_.type(node.inputs[0]);
    BatchStatistics& of = made_.statistics.emplace_back();
    of.node = n;
    of.mean = node.inputs[3];
    of.variance = node.inputs[4];
    of.count = values_of_channel(x);
    const std::pair<ValueId, std::string_view> both[] = {{of.mean, "mean"}, {of.variance, "variance"}};
    for (const auto& [weight, what] : both) {
      if (builder_.graph().value(weight).kind != ValueKind::weight || !moved_.insert(weight).second)
        return unsupported(
            fmt::format("batch_norm: batch: the {} of node {} is not a weight of its own", what, node.name));
      names.push_back(unused(fmt::format("batch {} of {}", what, node.name)));
    }
    node.op = Op::BatchNormalizationTraining;
    node.inputs.resize(3);
    return ok_status();
  }

  Status drop(size_t n, Node& node) {
    const TensorType x = builder_.type(node.inputs[0]);
    const Shape& first = given_.value(given_.inputs[0]).type.shape;
    if (x.shape.empty() || first.empty() || x.shape[0] != first[0])
      return unsupported(
          fmt::format("node {} drops elements of {}, whose first axis is not the samples", node.name, to_string(x)));
    if (!made_.steps.valid()) {
      for (const std::string_view name : {steps_name, samples_name}) {
        if (is_name(name))
          return invalid_input(fmt::format("the network has dropout and a value called {}: rename that", name));
      }
      made_.steps = builder_.weight(std::string(steps_name), steps_type(), constants_.add_fill(steps_type(), 0));
      samples_ = builder_.input(std::string(samples_name), {DType::i64, {x.shape[0]}});
    }
    node.op = Op::DropoutTraining;
    node.inputs = {node.inputs[0], made_.steps, samples_};
    set_attr(node.attrs, "seed", static_cast<int64_t>(seed_));
    set_attr(node.attrs, "stream", static_cast<int64_t>(n));
    return ok_status();
  }

  bool is_name(std::string_view name) const {
    return std::ranges::find(given_.values, name, &Value::name) != given_.values.end();
  }
  std::string unused(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 2; is_name(name); ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  const Graph& given_;
  GraphBuilder builder_;
  std::vector<ValueId> now_;  // [value of the network]
  BatchNorm batch_norm_;
  uint64_t seed_;
  WeightStore& constants_;
  TrainingNetwork made_;
  ValueId samples_;
  std::set<ValueId> moved_;
};

}  // namespace

Status check_statistics(const Graph& network, BatchNorm batch_norm) {
  for (const Node& node : network.nodes) {
    if (!by_samples(node, batch_norm)) continue;
    const TensorType& x = network.value(node.inputs[0]).type;
    if (values_of_channel(x) < 2)
      return unsupported(
          fmt::format("batch_norm: batch: node {} normalizes {}: a micro-batch has one value a channel, which has no "
                      "variance; take fewer micro-batches, or batch_norm: frozen",
                      node.name, to_string(x)));
  }
  return ok_status();
}

Result<TrainingNetwork> training_network(const Graph& network, BatchNorm batch_norm, uint64_t seed,
                                         WeightStore& constants) {
  const bool differs =
      std::ranges::any_of(network.nodes, [&](const Node& node) { return drops(node) || by_samples(node, batch_norm); });
  if (!differs) return TrainingNetwork{network, {}, {}};
  RETURN_IF_ERROR(check_statistics(network, batch_norm));
  return TrainingCopy(network, batch_norm, seed, constants).run();
}

}  // namespace nlsplit::inline graph
