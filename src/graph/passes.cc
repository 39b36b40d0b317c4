#include "graph/passes.h"

#include <fmt/format.h>

#include "graph/pass_list.h"

namespace nlsplit {
namespace {

constexpr Pass list[] = {
    {"remove_identity", "Takes out nodes that change nothing.", remove_identity},
    {"fold_batch_norm", "Folds a BatchNormalization into the weights of the Conv in front of it.", fold_batch_norm,
     false},
    {"fuse_bias", "Makes the constant that is added to every channel of a Conv its bias.", fuse_bias},
    {"fuse_elementwise", "Lets a node apply the element-wise steps behind it to its own result.", fuse_elementwise,
     false},
    {"remove_dead", "Drops nodes from which no output can be reached.", remove_dead},
};

uint64_t batched_mask(const std::vector<ValueId>& inputs, const std::vector<bool>& batched) {
  uint64_t mask = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].valid() && batched[inputs[i].index()]) mask |= uint64_t{1} << i;
  }
  return mask;
}

Status follow_batch(const Graph& graph, const Node& node, std::vector<bool>& batched) {
  if (node.inputs.size() > 64)
    return unsupported(fmt::format("node {} ({}) has more than 64 operands", node.name, name_of(node.op)));
  const uint64_t mask = batched_mask(node.inputs, batched);
  const bool result = mask != 0;
  if (result && !info(node.op).keeps_batch(input_types(graph, node), mask, node.attrs)) {
    return unsupported(fmt::format("node {} ({}) mixes samples of the batch", node.name, name_of(node.op)));
  }
  for (const EpilogueStep& step : node.epilogue) {
    if (step.operand.valid() && batched[step.operand.index()] != result) {
      return unsupported(fmt::format("node {} ({}) mixes samples of the batch", step.name, name_of(step.op)));
    }
  }
  for (const ValueId output : node.outputs) batched[output.index()] = result;
  return ok_status();
}

Result<int64_t> batch_of(const Graph& graph) {
  int64_t batch = -1;
  for (const ValueId input : graph.inputs) {
    const Shape& shape = graph.value(input).type.shape;
    if (shape.empty() || (batch >= 0 && shape[0] != batch)) {
      return unsupported(fmt::format("input {} is {}: the inputs do not agree on a batch axis", graph.value(input).name,
                                     to_string(graph.value(input).type)));
    }
    batch = shape[0];
  }
  return batch;
}

}  // namespace

std::span<const Pass> all_passes() { return list; }

Result<Graph> optimize(const Graph& graph, WeightStore& weights, Purpose purpose) {
  Graph now = graph;
  for (const Pass& pass : list) {
    if (purpose == Purpose::training && !pass.in_training) continue;
    ASSIGN_OR_RETURN(now, pass.run(now, weights));
    const Status sound = verify(now);
    CHECK(sound.ok(), fmt::format("pass {} broke the graph: {}", pass.name, sound.ok() ? "" : sound.error().message));
  }
  return now;
}

Result<std::vector<bool>> batched_values(const Graph& graph) {
  if (const auto batch = batch_of(graph); !batch) return batch.error();
  std::vector<bool> batched(graph.values.size(), false);
  for (const ValueId input : graph.inputs) batched[input.index()] = true;
  for (const Node& node : graph.nodes) RETURN_IF_ERROR(follow_batch(graph, node, batched));
  for (const ValueId output : graph.outputs) {
    if (!batched[output.index()])
      return unsupported(fmt::format("output {} does not depend on the input", graph.value(output).name));
  }
  return batched;
}

Result<Graph> with_batch(const Graph& graph, int64_t batch) {
  CHECK(batch >= 1, "a batch of nothing");
  ASSIGN_OR_RETURN(const int64_t old, batch_of(graph));
  if (old == batch) return graph;
  ASSIGN_OR_RETURN(const std::vector<bool> batched, batched_values(graph));
  Graph out = graph;
  for (const ValueId input : out.inputs) {
    Value& value = out.values[input.index()];
    value.type.shape[0] = batch;
    if (const Status sound = check_type(value.type); !sound.ok()) {
      return invalid_input(fmt::format("input {} at batch {}: {}", value.name, batch, sound.error().message));
    }
  }
  for (Node& node : out.nodes) {
    if (node.op == Op::Reshape && batched[node.outputs[0].index()]) {
      Shape shape = attr_ints(node.attrs, "shape");
      shape[0] = 0;  // axis 0 is the samples', as keeps_batch has just confirmed: whatever literal stood there
      set_attr(node.attrs, "shape", std::move(shape));
    }
    auto types = info(node.op).infer(input_types(out, node), node.attrs);
    if (!types) {
      return invalid_input(fmt::format("node {} ({}) does not work at batch {}: {}", node.name, name_of(node.op), batch,
                                       types.error().message));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) out.values[node.outputs[i].index()].type = (*types)[i];
  }
  RETURN_IF_ERROR(verify(out));
  return out;
}

}  // namespace nlsplit
