#include "compile/hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace nlsplit::inline compiler {
namespace {

struct KeptState {
  size_t node;  // that changes it
  DeviceId device;
};
using KeptStates = std::map<std::string, KeptState>;  // by name

Result<KeptStates> kept_states(const PlannedGraph& of) {
  RETURN_IF_ERROR(check_hand_over(of.plan->stages));
  const Graph& graph = of.graph->graph;
  KeptStates states;
  for (const StateUpdate& update : of.graph->updates) {
    const size_t node = graph.value(update.value).producer.index();
    const auto stage = std::ranges::find_if(of.plan->stages, [&](const Stage& one) { return node < one.end; });
    CHECK(stage != of.plan->stages.end(), "a plan of another graph");
    states.emplace(graph.value(update.state).name, KeptState{node, stage->devices[0]});
  }
  return states;
}

// The state's copy on another device has the same name: there it is that of the tokens.
void add_second(Graph& graph, size_t node) {
  constexpr std::string_view prefix = "handed_over.";
  Node second = graph.nodes[node];
  const NodeId id(graph.nodes.size());
  const auto add = [&](Value value) {
    graph.values.push_back(std::move(value));
    return ValueId(graph.values.size() - 1);
  };
  second.name = fmt::format("{}{}", prefix, second.name);
  second.inputs[0] = add(Value(graph.value(second.inputs[0])));
  for (ValueId& output : second.outputs) {
    Value value = graph.value(output);
    value.name = fmt::format("{}{}", prefix, value.name);
    value.producer = id;
    output = add(std::move(value));
  }
  graph.nodes.push_back(std::move(second));
}

}  // namespace

Status check_hand_over(std::span<const Stage> stages) {
  if (std::ranges::all_of(stages, is_of_one_device)) return ok_status();
  return unsupported(
      "prefill and decode by plans of their own: each stage has one device, no replicas and no split inside layers");
}

Result<HandOver> hand_over_states(const PlannedGraph& prompts, const PlannedGraph& tokens) {
  ASSIGN_OR_RETURN(const KeptStates from, kept_states(prompts));
  ASSIGN_OR_RETURN(const KeptStates to, kept_states(tokens));
  std::map<DeviceId, std::vector<size_t>> moved;  // nodes that change states which tokens have there
  for (const auto& [name, state] : to) {
    const auto same = from.find(name);
    if (same == from.end()) return unsupported(fmt::format("state {} of decode is not a state of prefill", name));
    if (same->second.device != state.device) moved[state.device].push_back(same->second.node);
  }
  if (from.size() != to.size()) return unsupported("prompts have states that tokens have not");
  const KernelGraph& whole = *prompts.graph;
  Graph graph = whole.graph;
  HandOver made;
  made.plan = *prompts.plan;
  std::vector<int> origin(graph.nodes.size());
  std::iota(origin.begin(), origin.end(), 0);
  for (auto& [device, nodes] : moved) {
    std::ranges::sort(nodes);  // as their operands are made
    Stage stage{graph.nodes.size(), graph.nodes.size() + nodes.size(), {device}};
    for (const size_t node : nodes) {
      origin.push_back(static_cast<int>(node));
      add_second(graph, node);
    }
    made.plan.stages.push_back(std::move(stage));
  }
  std::vector<Level> levels;
  for (const auto& [level, chosen] : whole.chosen) levels.push_back(level);
  ASSIGN_OR_RETURN(made.graph, choose_kernels(std::move(graph), levels, {}, std::nullopt, wanted_kernels(whole, origin),
                                              {}, whole.input_parts));
  return made;
}

}  // namespace nlsplit::inline compiler
