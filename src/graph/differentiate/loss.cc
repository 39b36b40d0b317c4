#include "graph/differentiate/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "graph/builder.h"
#include "graph/differentiate/differentiate.h"
#include "graph/elements.h"

namespace nlsplit::inline graph {
namespace {

Result<ValueId> mean(GraphBuilder& graph, ValueId value) {
  std::vector<int64_t> axes(graph.type(value).shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return graph.add(Op::ReduceMean, "loss", {value}, {{"axes", std::move(axes)}, {"keepdims", int64_t{0}}});
}

Status check_free(const Graph& graph, std::string_view name) {
  for (const Value& value : graph.values) {
    if (value.name == name) return invalid_input(fmt::format("the graph has a value {} already", name));
  }
  return ok_status();
}

}  // namespace

std::span<const std::string_view> loss_names() {
  static constexpr std::string_view names[] = {"mean_squared_error", "softmax_cross_entropy"};
  return names;
}

Result<Loss> parse_loss(std::string_view name) {
  const auto found = std::ranges::find(loss_names(), name);
  if (found != loss_names().end()) return static_cast<Loss>(found - loss_names().begin());
  return invalid_input(fmt::format("'{}' is not a loss; there are {}", name, fmt::join(loss_names(), " and ")));
}

Result<GraphWithLoss> with_loss(const Graph& graph, Loss loss) {
  if (graph.outputs.empty()) return invalid_input("a graph without an output has no loss");
  Graph silent = graph;
  silent.outputs.clear();
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(silent));
  ValueId y = graph.outputs[0];
  if (!is_real(graph.value(y).type.dtype))
    return invalid_input(
        fmt::format("output {} is {}: a loss is of floats", graph.value(y).name, to_string(graph.value(y).type)));
  const std::string_view input = loss == Loss::mean_squared_error ? "target" : "labels";
  RETURN_IF_ERROR(check_free(graph, input));
  RETURN_IF_ERROR(check_free(graph, "loss"));
  ValueId rows;
  if (loss == Loss::mean_squared_error) {
    const ValueId target = builder.input(std::string(input), graph.value(y).type);
    ASSIGN_OR_RETURN(const ValueId difference, builder.add(Op::Sub, "loss.difference", {y, target}, {}));
    ASSIGN_OR_RETURN(rows, builder.add(Op::Mul, "loss.square", {difference, difference}, {}));
  } else {
    if (const Value& value = graph.value(y); value.kind == ValueKind::node) {
      const Node& node = graph.node(value.producer);
      if (node.op == Op::Softmax && node.epilogue.empty()) y = node.inputs[0];
    }
    Shape shape = graph.value(y).type.shape;
    if (shape.size() < 2)
      return invalid_input(fmt::format("output {} is {}: it has no axis of classes after its samples",
                                       graph.value(y).name, to_string(graph.value(y).type)));
    shape.pop_back();
    const ValueId labels = builder.input(std::string(input), {DType::i64, std::move(shape)});
    ASSIGN_OR_RETURN(rows, builder.add(Op::SoftmaxCrossEntropy, "loss.rows", {y, labels}, {}));
  }
  GraphWithLoss made;
  ASSIGN_OR_RETURN(made.loss, mean(builder, rows));
  builder.output(made.loss);
  made.graph = std::move(builder).finish();
  return made;
}

std::vector<ValueId> trained_weights(const GraphWithLoss& with, const WeightStore& weights) {
  const Graph& graph = with.graph;
  std::set<ContentId> constant;
  for (const ContentId formula : weights.formulas()) constant.insert(formula);
  std::vector<bool> fixed(graph.values.size(), false), read(graph.values.size(), false);
  read[with.loss.index()] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](ValueId output) {
          return read[output.index()] && follows_its_inputs(*node, graph.value(output));
        }))
      continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (!node->inputs[i].valid()) continue;
      read[node->inputs[i].index()] = true;
      if (node->op == Op::BatchNormalization && i > 2) fixed[node->inputs[i].index()] = true;
    }
  }
  std::vector<ValueId> trained;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const bool is_weight = value.kind == ValueKind::weight && is_real(value.type.dtype);
    if (is_weight && read[v] && !fixed[v] && !constant.contains(value.content))
      trained.emplace_back(static_cast<uint32_t>(v));
  }
  return trained;
}

}  // namespace nlsplit::inline graph
