#include "graph/differentiate/step_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/builder.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

// An optimizer's steps are smaller than what such elements are apart.
Error weight_is_rounded(const Value& weight) {
  return unsupported(
      fmt::format("weight {} is {}: training needs f32; the model's ?weights=f32 makes f32 of a file's, weight_bits=32 "
                  "of the zoo's",
                  weight.name, to_string(weight.type)));
}

// Of the network's nodes: the one that makes the output, or what that is a view of. The loss is computed there.
size_t last_node(const Graph& network) {
  const Value& output = network.value(network.outputs[0]);
  return output.kind == ValueKind::node ? output.producer.index() : network.nodes.size() - 1;
}

std::vector<bool> computed_nodes(const Graph& graph, ValueId loss, const std::vector<StateUpdate>& sums) {
  std::vector<bool> needed(graph.values.size(), false), computed(graph.nodes.size(), false);
  needed[loss.index()] = true;
  for (const StateUpdate& sum : sums) needed[sum.value.index()] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (std::ranges::none_of(node.outputs, [&](ValueId output) { return needed[output.index()]; })) continue;
    computed[n] = !is_view(node.op);
    for (const ValueId read : reads_of(node)) needed[read.index()] = true;
  }
  return computed;
}

// A node that has just been added.
void note_node(StepNodes& nodes, const Graph& graph, NodePhase phase, size_t origin) {
  const size_t n = nodes.phases.size();
  nodes.phases.push_back(phase);
  nodes.origins.push_back(origin);
  nodes.derived[origin].push_back(n);
  nodes.computed.push_back(!is_view(graph.nodes[n].op));
}

// Of the forward pass, but that recomputation does not repeat: no gradient reads what they make.
Status add_running(StepGraph& step, const std::vector<BatchStatistics>& statistics, double momentum) {
  StepNodes& nodes = step.nodes;
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(step.graph));
  for (const BatchStatistics& of : statistics) {
    if (!nodes.computed[of.node]) continue;
    const auto count = static_cast<double>(of.count);
    const auto add = [&](std::string_view what, ValueId weight, ValueId value, double scale) -> Status {
      const std::string name = fmt::format("running {} of {}", what, step.graph.nodes[of.node].name);
      ASSIGN_OR_RETURN(const ValueId moved, builder.add(Op::MovingAverage, name, {weight, value},
                                                        {{"momentum", momentum}, {"scale", scale}}));
      nodes.running.push_back(weight);
      nodes.updates.push_back({weight, moved});
      note_node(nodes, builder.graph(), NodePhase::forward, of.node);
      return ok_status();
    };
    RETURN_IF_ERROR(add("mean", of.mean, of.batch_mean, 1));
    RETURN_IF_ERROR(add("variance", of.variance, of.batch_variance, count / (count - 1)));
  }
  step.graph = std::move(builder).finish();
  return ok_status();
}

// What the step delivers: the loss of each micro-batch.
Status add_output(StepGraph& step, ValueId loss, size_t origin) {
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(step.graph));
  ASSIGN_OR_RETURN(const ValueId output,
                   builder.add(Op::Reshape, std::string(losses_name), {loss}, {{"shape", losses_type().shape}}));
  note_node(step.nodes, builder.graph(), NodePhase::forward, origin);
  builder.output(output);
  step.graph = std::move(builder).finish();
  return ok_status();
}

// A node of a step that belongs to no stage.
void note_shared_node(StepNodes& nodes, std::vector<size_t>& list) {
  list.push_back(nodes.phases.size());
  nodes.phases.push_back(NodePhase::step);
  nodes.origins.push_back(0);
  nodes.computed.push_back(true);
}

// [trained]: the gradient of the step, its parts added from that of the last reader to the first's.
Result<std::vector<ValueId>> add_parts(GraphBuilder& builder, StepNodes& nodes,
                                       const std::vector<size_t>& first_reader) {
  nodes.of_weights.resize(nodes.trained.size());
  std::vector<ValueId> gradients;
  for (size_t t = 0; t < nodes.trained.size(); ++t) {
    const ValueId weight = nodes.trained[t];
    const std::vector<size_t>& parts = nodes.parts[t];
    ValueId sum = nodes.sums[parts[0]].value;
    for (size_t k = 1; k < parts.size(); ++k) {
      const std::string name = fmt::format("gradient {} of {}", k, builder.graph().value(weight).name);
      ASSIGN_OR_RETURN(sum, builder.add(Op::Add, name, {sum, nodes.sums[parts[k]].value}, {}));
      nodes.of_weights[t].push_back(nodes.phases.size());
      note_node(nodes, builder.graph(), NodePhase::step, first_reader[weight.index()]);
    }
    gradients.push_back(sum);
  }
  return gradients;
}

// The factor of all gradients. The norm is an output.
Result<ValueId> add_clipping(GraphBuilder& builder, StepNodes& nodes, const std::vector<ValueId>& gradients,
                             const std::vector<size_t>& first_reader, double clip) {
  std::vector<ValueId> squares;
  size_t first_stage = nodes.network;
  for (size_t t = 0; t < nodes.trained.size(); ++t) {
    const std::string name = builder.graph().value(nodes.trained[t]).name;
    ASSIGN_OR_RETURN(squares.emplace_back(), builder.add(Op::SumOfSquares, "squares of " + name, {gradients[t]}, {}));
    nodes.squares.push_back(nodes.phases.size());
    const size_t origin = first_reader[nodes.trained[t].index()];
    note_node(nodes, builder.graph(), NodePhase::step, origin);
    first_stage = std::min(first_stage, origin);
  }
  ASSIGN_OR_RETURN(const std::vector<ValueId> made, builder.add_all(Op::ClipFactor, "clip", squares, {{"clip", clip}},
                                                                    {std::string(gradient_norm_name), "clip_factor"}));
  nodes.clip = nodes.phases.size();
  note_node(nodes, builder.graph(), NodePhase::step, first_stage);
  builder.output(made[0]);
  return made[1];
}

// The step's rate; one node for each trained weight, in their order, in the stage of the weight's first reader; the
// number of steps.
Status add_updates(StepGraph& step, const TrainingOptions& options, ValueId steps) {
  StepNodes& nodes = step.nodes;
  const OptimizerSettings& settings = options.settings;
  std::vector<size_t> first_reader(step.graph.values.size(), 0);
  for (size_t n = nodes.network; n-- > 0;) {
    for (const ValueId read : reads_of(step.graph.nodes[n])) first_reader[read.index()] = n;
  }
  ASSIGN_OR_RETURN(GraphBuilder builder, reopen(step.graph));
  if (!steps.valid())
    steps = builder.weight(std::string(steps_name), steps_type(), nodes.constants.add_fill(steps_type(), 0));
  const RateSchedule schedule = settings.rate.value_or(RateSchedule{usual_rate(options.optimizer)});
  ASSIGN_OR_RETURN(const ValueId rate, builder.add(Op::LearningRate, "learning_rate", {steps}, rate_attrs(schedule)));
  note_shared_node(nodes, nodes.before_updates);
  ASSIGN_OR_RETURN(const std::vector<ValueId> gradients, add_parts(builder, nodes, first_reader));
  ValueId factor;
  if (options.clip) {
    ASSIGN_OR_RETURN(factor, add_clipping(builder, nodes, gradients, first_reader, *options.clip));
  }
  for (size_t t = 0; t < nodes.trained.size(); ++t) {
    const ValueId weight = nodes.trained[t];
    const TensorType type = step.graph.value(weight).type;
    const std::string name = step.graph.value(weight).name;
    std::vector<ValueId> states{weight}, inputs{weight, gradients[t]};
    const std::vector<TensorType> kept = update_states(options.optimizer, type);
    for (size_t i = 0; i < kept.size(); ++i) {
      states.push_back(builder.weight(fmt::format("{}{}", name, state_names(options.optimizer)[i]), kept[i],
                                      nodes.constants.add_fill(kept[i], 0)));
      inputs.push_back(states.back());
    }
    if (counts_steps(options.optimizer)) inputs.push_back(steps);
    inputs.push_back(rate);
    if (factor.valid()) inputs.push_back(factor);
    const bool decays = !settings.decay_matrices_only || type.shape.size() >= 2;
    ASSIGN_OR_RETURN(const std::vector<ValueId> made,
                     builder.add_all(update_op(options.optimizer), "update " + name, inputs,
                                     update_attrs(options.optimizer, settings, decays)));
    CHECK(made.size() == states.size(), "an update makes what it keeps");
    for (size_t i = 0; i < made.size(); ++i) nodes.updates.push_back({states[i], made[i]});
    nodes.of_weights[t].push_back(nodes.phases.size());
    note_node(nodes, builder.graph(), NodePhase::step, first_reader[weight.index()]);
  }
  ASSIGN_OR_RETURN(const ValueId counted, builder.add(Op::StepCount, "count_step", {steps}, {}));
  note_shared_node(nodes, nodes.behind_updates);
  nodes.updates.push_back({steps, counted});
  step.graph = std::move(builder).finish();
  return ok_status();
}

}  // namespace

TensorType losses_type() { return {DType::f32, {1}}; }
TensorType gradient_norm_type() { return {DType::f32, {1}}; }

std::vector<ValueId> changed_weights(const StepNodes& nodes) {
  std::vector<ValueId> all = nodes.trained;
  all.insert(all.end(), nodes.running.begin(), nodes.running.end());
  return all;
}

Result<StepGraph> step_graph(const Graph& given, const TrainingOptions& options) {
  for (const Value& value : given.values) {
    if (is_scaled(value.type.dtype)) return weight_is_rounded(value);
  }
  for (const Node& node : given.nodes) {
    if (node.op != Op::Linear) continue;
    const Value& weight = given.value(node.inputs[1]);
    if (is_half(weight.type.dtype) && given.value(node.inputs[0]).type.dtype == DType::f32)
      return weight_is_rounded(weight);
  }
  StepGraph step;
  StepNodes& nodes = step.nodes;
  ASSIGN_OR_RETURN(TrainingNetwork training,
                   training_network(given, options.batch_norm, options.seed, nodes.constants));
  step.network = std::move(training.graph);
  const Graph& network = step.network;
  ASSIGN_OR_RETURN(const GraphWithLoss with, with_loss(network, options.loss));
  nodes.trained = trained_weights(with, nodes.constants);
  std::erase_if(nodes.trained, [&](ValueId id) {
    const Value& weight = network.value(id);
    const bool scalar = element_count(weight.type.shape) <= 1 && !options.parts.contains(weight.name);
    return weight.type.dtype != DType::f32 || scalar || options.constants.contains(weight.content);
  });
  if (nodes.trained.empty()) return invalid_input("there is nothing to train: the loss depends on no weight");
  nodes.parts.resize(nodes.trained.size());
  // A stage's sums are slices of one buffer, where they are flat.
  const auto accumulate = [&](GraphBuilder& builder, size_t t, ValueId gradient) -> Status {
    const Value& weight = network.value(nodes.trained[t]);
    const TensorType flat{weight.type.dtype, {element_count(weight.type.shape)}};
    const size_t part = nodes.parts[t].size();
    const std::string number = part == 0 ? "" : fmt::format("_{}", part + 1);
    const ValueId sum = builder.weight(weight.name + "_gradient" + number, flat, nodes.constants.add_fill(flat, 0));
    ASSIGN_OR_RETURN(const ValueId value,
                     builder.add(Op::Accumulate, "accumulate " + weight.name + number, {sum, gradient}, {}));
    nodes.parts[t].push_back(nodes.sums.size());
    nodes.sums.push_back({sum, value});
    return ok_status();
  };
  const double share = 1.0 / options.micro_batches;
  ASSIGN_OR_RETURN(Differentiated made, differentiate(with.graph, with.loss, nodes.trained, nodes.constants, share,
                                                      accumulate, options.sums));
  step.graph = std::move(made.graph);
  step.graph.outputs.clear();
  nodes.network = network.nodes.size();
  nodes.phases = std::move(made.phases);
  nodes.derived.resize(nodes.network);
  const size_t last = last_node(network);
  for (size_t n = 0; n < step.graph.nodes.size(); ++n) {
    const size_t origin = made.origins[n] < nodes.network ? made.origins[n] : last;
    nodes.origins.push_back(origin);
    if (n >= nodes.network) nodes.derived[origin].push_back(n);
  }
  nodes.computed = computed_nodes(step.graph, with.loss, nodes.sums);
  RETURN_IF_ERROR(add_running(step, training.statistics, options.batch_norm_momentum));
  RETURN_IF_ERROR(add_output(step, with.loss, last));
  RETURN_IF_ERROR(add_updates(step, options, training.steps));
  return step;
}

}  // namespace nlsplit::inline graph
