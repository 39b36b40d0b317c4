// Pass `place`: devices, stages' nodes, flows.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

#include "base/limits.h"
#include "compile/lowering.h"
#include "cost/messages.h"
#include "partition/layer_names.h"

namespace nlsplit::inline compiler {
namespace {

Status check_given(const Lowering& lowering) {
  const KernelGraph& network = *lowering.network;
  const Cluster& cluster = *lowering.cluster;
  CHECK(lowering.endpoints.source.index() < cluster.hosts.size() &&
            lowering.endpoints.sink.index() < cluster.hosts.size(),
        "unknown endpoints");
  CHECK(network.root.size() == network.graph.values.size(), "a KernelGraph that choose_kernels did not make");
  CHECK(!has_splits(*lowering.plan), "a plan that splits layers, and nobody has expanded it");
  const int64_t batch = samples_of(network.graph) * lowering.plan->micro_batches;
  RETURN_IF_ERROR(check_plan(*lowering.plan, network.graph, cluster, batch, network.input_parts));
  for (const Stage& stage : lowering.plan->stages) {
    for (const DeviceId id : stage.devices) {
      const Device& device = cluster.device(id);
      if (network.kernels.contains(device.level)) continue;
      return invalid_input(
          fmt::format("no kernels were chosen for level {} of device {}", name_of(device.level), device.name));
    }
  }
  return ok_status();
}

// The plan's devices in order of first use, then those without work.
void add_devices(Lowering& lowering) {
  for (const Stage& stage : lowering.plan->stages) {
    std::vector<int>& replicas = lowering.stage_devices.emplace_back();
    for (const DeviceId id : stage.devices) {
      const auto found = std::ranges::find(lowering.devices, id);
      replicas.push_back(static_cast<int>(found - lowering.devices.begin()));
      if (found != lowering.devices.end()) continue;
      lowering.devices.push_back(id);
      add_device(lowering.cluster->device(id), *lowering.cluster, lowering.program);
    }
  }
  for (const DeviceId id : lowering.idle) {
    if (std::ranges::find(lowering.devices, id) == lowering.devices.end())
      add_device(lowering.cluster->device(id), *lowering.cluster, lowering.program);
  }
}

// The Program's device on a host, or a new one that only holds data.
int endpoint(Lowering& lowering, HostId host) {
  std::vector<DeviceProgram>& devices = lowering.program.devices;
  const std::string& name = lowering.cluster->hosts[host.index()].name;
  const auto here = std::ranges::find(devices, name, &DeviceProgram::host);
  if (here != devices.end()) return static_cast<int>(here - devices.begin());
  DeviceProgram out;
  out.name = name;
  for (int i = 2; std::ranges::find(devices, out.name, &DeviceProgram::name) != devices.end(); ++i)
    out.name = fmt::format("{}_{}", name, i);  // a device of another host may be called like this host
  out.kind = DeviceKind::host;
  out.host = name;
  out.memory = bytes(int64_t{1} << 60);  // 1 EiB: no limit, it holds the user's data wherever that is
  devices.push_back(std::move(out));
  return static_cast<int>(devices.size()) - 1;
}

// Of each trained weight the stages that read it, and so update it.
void add_updates(Lowering& lowering) {
  const StepNodes& step = lowering.training->nodes;
  StageNodes& nodes = lowering.nodes;
  const Graph& g = lowering.graph->graph;
  const auto made_in = [&](ValueId value) { return nodes.of_node[g.value(value).producer.index()]; };
  int parts = 0;
  for (size_t t = 0; t < step.trained.size(); ++t) {
    for (const size_t i : step.parts[t]) nodes.sums[at(made_in(step.sums[i].value))].push_back(i);
    std::set<int> stages;
    for (const size_t reader : lowering.graph->readers[step.trained[t].index()]) {
      if (step.phases[reader] != NodePhase::step) stages.insert(nodes.of_node[reader]);
    }
    const std::vector<size_t>& own = step.of_weights[t];
    for (const int stage : stages) std::ranges::copy(own, std::back_inserter(nodes.step[at(stage)]));
    if (stages.size() == 1) continue;
    Tied& tied = lowering.tied.emplace_back();
    tied.stages.assign(stages.begin(), stages.end());
    tied.adds.assign(own.begin(), own.end() - 1);
    for (const size_t i : step.parts[t])
      tied.parts.push_back({step.sums[i].state, made_in(step.sums[i].value), parts++});
  }
}

// The forward nodes of a stage that must run again before its gradients, in order. What the stage was given is kept.
std::vector<size_t> nodes_again(const Lowering& lowering, size_t stage) {
  const KernelGraph& graph = *lowering.graph;
  std::vector<bool> needed(graph.graph.values.size(), false);
  const auto read = [&](size_t n) {
    for (const ValueId value : reads_of(graph.graph.nodes[n])) needed[graph.root[value.index()].index()] = true;
  };
  const StageNodes& nodes = lowering.nodes;
  for (const auto* gradients : {&nodes.input[stage], &nodes.weight[stage]}) std::ranges::for_each(*gradients, read);
  std::vector<size_t> again;
  for (auto n = nodes.forward[stage].rbegin(); n != nodes.forward[stage].rend(); ++n) {
    if (std::ranges::none_of(graph.graph.nodes[*n].outputs, [&](ValueId v) { return needed[v.index()]; })) continue;
    read(*n);
    again.push_back(*n);
  }
  std::ranges::reverse(again);
  return again;
}

// A plan cuts the network; each further node of a training step is in the stage of the node it belongs to.
void add_nodes(Lowering& lowering) {
  const Plan& plan = *lowering.plan;
  StageNodes& nodes = lowering.nodes;
  for (auto* lists : {&nodes.forward, &nodes.input, &nodes.weight, &nodes.step, &nodes.again, &nodes.sums})
    lists->resize(plan.stages.size());
  std::vector<int> of_network(lowering.network->graph.nodes.size(), source_stage);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (size_t n = plan.stages[s].begin; n < plan.stages[s].end; ++n) of_network[n] = static_cast<int>(s);
  }
  const StepNodes* step = lowering.training == nullptr ? nullptr : &lowering.training->nodes;
  std::vector<bool> shared(lowering.graph->graph.nodes.size(), false);  // computed by more than one stage
  if (step != nullptr) {
    for (const auto* list : {&step->before_updates, &step->behind_updates}) {
      for (const size_t n : *list) shared[n] = true;
    }
  }
  if (step != nullptr && step->clip) {
    const Node& clip = lowering.graph->graph.nodes[*step->clip];
    Clipping& clipping = lowering.clipping.emplace();
    clipping.stage = of_network[step->origins[*step->clip]];
    clipping.norm = clip.outputs[0];
    clipping.factor = clip.outputs[1];
    clipping.sums.resize(plan.stages.size());
    shared[*step->clip] = true;
    for (const size_t n : step->squares) {
      Clipping::Sums& sums = clipping.sums[at(of_network[step->origins[n]])];
      sums.place[lowering.graph->graph.nodes[n].outputs[0]] = static_cast<int64_t>(sums.nodes.size());
      sums.nodes.push_back(n);
      shared[n] = true;
    }
  }
  for (size_t n = 0; n < lowering.graph->graph.nodes.size(); ++n) {
    const int stage = shared[n] ? every_stage : of_network[step == nullptr ? n : step->origins[n]];
    nodes.of_node.push_back(stage);
    if (!lowering.graph->computed[n] || stage == source_stage) continue;
    switch (step == nullptr ? NodePhase::forward : step->phases[n]) {
      case NodePhase::forward:
        nodes.forward[at(stage)].push_back(n);
        break;
      case NodePhase::input:
        nodes.input[at(stage)].push_back(n);
        break;
      case NodePhase::weight:
        nodes.weight[at(stage)].push_back(n);
        break;
      case NodePhase::step:  // add_updates
        break;
    }
  }
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (lowering.recomputes(static_cast<int>(s))) nodes.again[s] = nodes_again(lowering, s);
  }
  if (step != nullptr) add_updates(lowering);
}

// Errors: an output that is a constant; a state that is read in another stage.
Status add_flows(Lowering& lowering) {
  const KernelGraph& graph = *lowering.graph;
  const Graph& g = graph.graph;
  std::vector<bool> is_output(g.values.size(), false);
  for (const ValueId output : g.outputs) {
    const ValueId root = graph.root[output.index()];
    if (g.value(root).kind == ValueKind::weight) {
      return unsupported(fmt::format("output '{}' is a constant: nothing computes it", g.value(output).name));
    }
    is_output[root.index()] = true;
  }
  lowering.flow_of.assign(g.values.size(), -1);
  std::vector<bool> lasts(g.values.size(), false);
  for (const StateUpdate& update : graph.updates) lasts[update.value.index()] = true;
  std::string read_elsewhere;
  const auto add = [&](ValueId root, int producer) {
    Flow flow{root, producer, {}, lowering.phase_of(root) == NodePhase::input};
    for (const size_t reader : graph.readers[root.index()]) {
      // What a step reads it has, or gets with the others' parts.
      if (lowering.training != nullptr && lowering.training->nodes.phases[reader] == NodePhase::step) continue;
      const int stage = lowering.nodes.of_node[reader];
      if (stage != producer && (flow.consumers.empty() || flow.consumers.back() != stage))
        flow.consumers.push_back(stage);
    }
    if (lowering.training != nullptr) {  // gradients are computed from the last stage to the first
      std::ranges::sort(flow.consumers);
      flow.consumers.erase(std::unique(flow.consumers.begin(), flow.consumers.end()), flow.consumers.end());
    }
    if (is_output[root.index()]) flow.consumers.push_back(lowering.stages());
    if (flow.consumers.empty()) return;
    if (lasts[root.index()] && read_elsewhere.empty()) {
      const auto reader = std::ranges::find_if(graph.readers[root.index()],
                                               [&](size_t n) { return lowering.nodes.of_node[n] != producer; });
      read_elsewhere = fmt::format("'{}' is the state of a stage: {} cannot read it", g.value(root).name,
                                   reader == graph.readers[root.index()].end()
                                       ? std::string("the sink")
                                       : fmt::format("'{}' of another stage", g.nodes[*reader].name));
    }
    // Nobody computes where inputs and their parts come from.
    flow.travels_as = producer == source_stage
                          ? g.value(root).type.dtype
                          : travels_as(g, root, is_output[root.index()], lowering.cluster->messages);
    lowering.flow_of[root.index()] = static_cast<int>(lowering.flows.size());
    lowering.flows.push_back(std::move(flow));
  };
  for (const ValueId input : g.inputs) add(input, source_stage);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    // What a step makes stays on its device, or is of clipping.
    const bool of_step = lowering.training != nullptr && lowering.training->nodes.phases[n] == NodePhase::step;
    if (!graph.computed[n] || of_step) continue;
    for (const ValueId output : g.nodes[n].outputs) add(output, lowering.nodes.of_node[n]);
  }
  if (!read_elsewhere.empty()) return unsupported(read_elsewhere);
  constexpr size_t most_tags = largest_tag + 1;
  const size_t stages = lowering.plan->stages.size();
  size_t parts = 0;
  for (const Tied& tied : lowering.tied) parts += tied.parts.size();
  // Credits, reductions and what a step's devices tell each other have tags of their own.
  if (lowering.flows.size() + (lowering.steps_together() ? 2 * stages + 2 + parts : stages) > most_tags)
    return unsupported(fmt::format("{} values cross stages, more than there are tags", lowering.flows.size()));
  return ok_status();
}

}  // namespace

void add_device(const Device& device, const Cluster& cluster, Program& program) {
  DeviceProgram& out = program.devices.emplace_back();
  out.name = device.name;
  out.kind = device.kind;
  out.host = cluster.hosts[device.host.index()].name;
  out.level = device.level;
  out.cores = device.cores;
  out.memory = device.memory;
}

Status place(Lowering& lowering) {
  RETURN_IF_ERROR(check_given(lowering));
  const KernelGraph& network = *lowering.network;
  lowering.training = network.training.get();
  const DType messages = lowering.cluster->messages;
  CHECK(may_travel_as(messages), "a type that no message has");
  if (lowering.training != nullptr && messages != DType::f32 && messages != DType::bf16)
    return unsupported(
        fmt::format("messages in {} are for inference: gradients have the range of f32, and travel as f32 or bf16",
                    name_of(messages)));
  lowering.graph = lowering.training == nullptr ? &network : &lowering.training->step;
  Program& program = lowering.program;
  program.batch = samples_of(network.graph) * lowering.plan->micro_batches;
  program.micro_batches = lowering.plan->micro_batches;
  program.eager_limit = lowering.cluster->eager_limit;
  program.nic_window = lowering.cluster->nic_window;
  add_devices(lowering);
  lowering.source = endpoint(lowering, lowering.endpoints.source);
  lowering.sink = endpoint(lowering, lowering.endpoints.sink);
  add_nodes(lowering);
  return add_flows(lowering);
}

}  // namespace nlsplit::inline compiler
