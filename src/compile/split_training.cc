#include "compile/split_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "graph/optimizer.h"
#include "graph/passes/precision.h"

namespace nlsplit::inline compiler {
namespace {

// Names of the weights that a Program of the graph changes, or another one of its session.
std::set<std::string> changed_names(const KernelGraph& kernels) {
  std::set<std::string> names;
  const std::vector<ValueId> changed = kernels.training ? changed_weights(kernels.training->nodes) : kernels.states;
  for (const ValueId weight : changed) names.insert(kernels.graph.value(weight).name);
  return names;
}

// `parts`: of one weight, several or not all of it; sorted here.
Status check_parts(std::vector<const WeightPart*>& parts) {
  std::ranges::sort(parts, {}, [](const WeightPart* part) { return part->region.begin; });
  const int axis = parts.front()->region.axis;
  int64_t end = 0;
  bool side_by_side = axis >= 0;
  for (const WeightPart* part : parts) {
    side_by_side = side_by_side && part->region.axis == axis && part->region.begin == end;
    end = part->region.end;
  }
  const WeightPart& first = *parts.front();
  if (side_by_side && end == first.whole_type.shape[static_cast<size_t>(axis)]) return ok_status();
  return invalid_input(fmt::format(
      "weight {} cannot be trained under this plan: its shards read parts of it that overlap, or not all of it",
      first.whole));
}

}  // namespace

Status check_split_training(const Graph& network, BatchNorm batch_norm, int zero, bool exact) {
  if (zero > 0)
    return unsupported(fmt::format("zero: {} is for plans of layers and replicas, and this one splits layers", zero));
  if (exact)
    return unsupported(
        "all_reduce: exact is for plans of layers and replicas: one that splits layers adds the gradients of its "
        "shards in their order");
  for (const Node& node : network.nodes) {
    if (node.op == Op::DropoutTraining || (node.op == Op::Dropout && attr_float(node.attrs, "ratio") != 0))
      return unsupported(
          fmt::format("node {} drops elements, and a plan that splits layers would drop others: such a network trains "
                      "under plans of layers and replicas",
                      node.name));
    if (node.op == Op::BatchNormalizationTraining ||
        (node.op == Op::BatchNormalization && batch_norm == BatchNorm::batch))
      return unsupported(
          fmt::format("batch_norm: batch: node {} normalizes by its samples, which a plan that splits layers may part: "
                      "take batch_norm: frozen, or a plan of layers and replicas",
                      node.name));
  }
  return ok_status();
}

Graph up_to_loss(const Graph& network, Loss loss) {
  Graph trained = network;
  if (trained.outputs.empty()) return trained;
  trained.outputs.resize(1);
  const Value& output = network.value(network.outputs[0]);
  if (loss != Loss::softmax_cross_entropy || output.kind != ValueKind::node) return trained;
  const Node& node = network.node(output.producer);
  if (node.op == Op::Softmax && node.epilogue.empty()) trained.outputs[0] = node.inputs[0];
  return trained;
}

void set_for_shards(TrainingOptions& options, const Expanded& expanded) {
  options.sums = SumPlace::maker;
  for (const WeightSlice& slice : expanded.slices) {
    if (options.constants.contains(slice.from)) options.constants.insert(slice.id);
  }
  for (const WeightPart& part : expanded.weights) {
    if (element_count(part.whole_type.shape) > 1) options.parts.insert(part.name);
  }
}

std::vector<ValueId> states_of_shards(const KernelGraph& whole, const Expanded& expanded) {
  std::vector<ValueId> states;
  if (whole.training) return states;
  std::set<std::string> wholes, names;
  for (const ValueId state : whole.states) {
    if (!whole.graph.value(state).state) wholes.insert(whole.graph.value(state).name);
  }
  for (const WeightPart& part : expanded.weights) {
    if (wholes.contains(part.whole)) names.insert(part.name);
  }
  for (size_t v = 0; v < expanded.graph.values.size(); ++v) {
    const Value& value = expanded.graph.values[v];
    if (value.kind == ValueKind::weight && names.contains(value.name)) states.emplace_back(v);
  }
  return states;
}

Result<StateParts> parts_of_states(const KernelGraph& kernels, const std::vector<WeightPart>& weights) {
  const std::set<std::string> changed = changed_names(kernels);
  std::map<std::string_view, std::vector<const WeightPart*>> by_whole;
  for (const WeightPart& weight : weights) {
    if (changed.contains(weight.name)) by_whole[weight.whole].push_back(&weight);
  }
  std::vector<std::string_view> suffixes{""};
  if (kernels.training) {
    for (const std::string_view suffix : state_names(kernels.training->options.optimizer)) suffixes.push_back(suffix);
  }
  StateParts states;
  for (auto& [whole, parts] : by_whole) {
    if (parts.size() == 1 && parts[0]->region.axis < 0) continue;
    RETURN_IF_ERROR(check_parts(parts));
    for (const WeightPart* part : parts) {
      const Region& region = part->region;
      for (const std::string_view suffix : suffixes) {
        states[fmt::format("{}{}", part->name, suffix)] = {fmt::format("{}{}", whole, suffix), region.axis,
                                                           region.begin,
                                                           part->whole_type.shape[static_cast<size_t>(region.axis)]};
      }
    }
  }
  return states;
}

Promise promise_of_split_training(DType coarsest) {
  return {rounding_tolerance(coarsest), "gradients of shards are added in another order"};
}

}  // namespace nlsplit::inline compiler
