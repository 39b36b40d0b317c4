#include "graph/passes/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text_reader.h"
#include "graph/passes/pass_list.h"

namespace nlsplit::inline graph {
namespace {

constexpr Pass list[] = {
    {"remove_dropout", "Takes out dropout, which inference does not know.", remove_dropout, false},
    {"remove_identity", "Takes out nodes that change nothing.", remove_identity},
    {"fold_constant_views", "Gives a constant the shape that a reshape of it asks for.", fold_constant_views, false},
    {"merge_pairs", "Merges two reshapes or two transposes in a row into one, or none where they cancel.", merge_pairs},
    {"merge_common", "Merges nodes that compute the same result.", merge_common, false},
    {"recognize_layer_norm", "Makes one LayerNormalization of its parts.", recognize_layer_norm},
    {"recognize_softmax", "Makes one Softmax of its parts.", recognize_softmax},
    {"recognize_attention", "Makes one Attention of two products and the Softmax between them.", recognize_attention,
     false},
    {"recognize_gelu", "Makes one Gelu of its parts, by erf or by tanh.", recognize_gelu},
    {"simplify_powers", "Makes products of squares and cubes, and inverses of powers by -1.", simplify_powers},
    {"sink_transposes", "Moves transposes after element-wise nodes, towards others that they cancel with.",
     sink_transposes},
    {"fold_batch_norm", "Folds a BatchNormalization into the weights of the Conv, ConvTranspose or Gemm before it.",
     fold_batch_norm, false},
    {"fold_batch_norm_ahead", "Folds a BatchNormalization into the weights of the Conv after it.",
     fold_batch_norm_ahead, false},
    {"fuse_bias", "Makes the constant that is added to every channel of a convolution or product its bias.", fuse_bias},
    {"fuse_elementwise", "Lets a node apply the element-wise steps after it to its own result.", fuse_elementwise,
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
  if (node.op == Op::PagedScatter && (mask & 1) == 0) return ok_status();  // into the pages of all samples
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

Error no_such_pass(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Pass& pass : list) names.push_back(pass.name);
  const std::string near = nearest(name, names);
  return invalid_input(fmt::format("no pass is called \"{}\"{}; there are {}; or write all or none", name,
                                   near.empty() ? "" : fmt::format(", did you mean {}?", near),
                                   fmt::join(names, ", ")));
}

// [value]: a state with a place for each sample. Pages belong to whoever has them.
std::vector<bool> states_of_samples(const Graph& graph) {
  std::vector<bool> of_samples(graph.values.size(), false);
  for (size_t v = 0; v < graph.values.size(); ++v) of_samples[v] = graph.values[v].state;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::PagedScatter) of_samples[node.inputs[0].index()] = false;
  }
  return of_samples;
}

}  // namespace

std::span<const Pass> all_passes() { return list; }

Result<std::vector<Pass>> select_passes(std::string_view names) {
  if (names == "none") return std::vector<Pass>{};
  std::vector<Pass> chosen;
  while (true) {
    const size_t comma = names.find(',');
    const std::string_view word = names.substr(0, comma);
    const bool leaves_out = word.starts_with('-');
    const std::string_view name = leaves_out ? word.substr(1) : word;
    const auto named = [&](const Pass& pass) { return pass.name == name; };
    if (word == "all") {
      chosen.insert(chosen.end(), std::begin(list), std::end(list));
    } else if (const auto found = std::ranges::find_if(list, named); found == std::end(list)) {
      return no_such_pass(name);
    } else if (!leaves_out) {
      chosen.push_back(*found);
    } else if (std::erase_if(chosen, named) == 0) {
      return invalid_input(fmt::format("{} cannot be left out: it is not among the passes named before", name));
    }
    if (comma == std::string_view::npos) return chosen;
    names.remove_prefix(comma + 1);
  }
}

Result<Graph> run_passes(const Graph& graph, WeightStore& weights, std::span<const Pass> passes) {
  Graph now = graph;
  for (const Pass& pass : passes) {
    ASSIGN_OR_RETURN(now, pass.run(now, weights));
    const Status sound = verify(now);
    CHECK(sound.ok(), fmt::format("pass {} broke the graph: {}", pass.name, sound.ok() ? "" : sound.error().message));
  }
  return now;
}

Result<Graph> optimize(const Graph& graph, WeightStore& weights, Purpose purpose) {
  std::vector<Pass> passes;
  std::ranges::copy_if(list, std::back_inserter(passes),
                       [&](const Pass& pass) { return purpose == Purpose::inference || pass.in_training; });
  return run_passes(graph, weights, passes);
}

Result<std::vector<bool>> batched_values(const Graph& graph) {
  if (const auto batch = batch_of(graph); !batch) return batch.error();
  std::vector<bool> batched = states_of_samples(graph);
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
  const std::vector<bool> of_samples = states_of_samples(graph);
  Graph out = graph;
  for (size_t v = 0; v < out.values.size(); ++v) {
    Value& value = out.values[v];
    if (value.kind != ValueKind::input && !of_samples[v]) continue;
    value.type.shape[0] = batch;
    if (const Status sound = check_type(value.type); !sound.ok()) {
      return invalid_input(fmt::format("{} {} at batch {}: {}", value.state ? "state" : "input", value.name, batch,
                                       sound.error().message));
    }
  }
  for (Node& node : out.nodes) {
    if (node.op == Op::Reshape && batched[node.outputs[0].index()]) {
      Shape shape = attr_ints(node.attrs, "shape");
      shape[0] = 0;  // axis 0 is the samples', as keeps_batch has just confirmed: whatever literal stood there
      set_attr(node.attrs, "shape", std::move(shape));
    }
    auto types = infer(node.op, input_types(out, node), node.attrs);
    if (!types) {
      return invalid_input(fmt::format("node {} ({}) does not work at batch {}: {}", node.name, name_of(node.op), batch,
                                       types.error().message));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) out.values[node.outputs[i].index()].type = (*types)[i];
  }
  RETURN_IF_ERROR(verify(out));
  return out;
}

}  // namespace nlsplit::inline graph
