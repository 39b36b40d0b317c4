#include "program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "program/lower_device.h"
#include "program/lower_training.h"
#include "schedule/assign.h"

namespace nlsplit {
namespace {

// The plan's devices in order of first use; endpoints behind them.
struct Lineup {
  std::vector<DeviceId> plan_devices;
  std::vector<std::vector<int>> stage_devices;  // [stage][replica]: index into plan_devices
  int source = 0, sink = 0;
};

Lineup line_up(const Plan& plan, const Cluster& cluster, const Endpoints& endpoints, Program& program) {
  Lineup lineup;
  for (const Stage& stage : plan.stages) {
    std::vector<int>& indices = lineup.stage_devices.emplace_back();
    for (const DeviceId id : stage.devices) {
      const auto found = std::find(lineup.plan_devices.begin(), lineup.plan_devices.end(), id);
      indices.push_back(static_cast<int>(found - lineup.plan_devices.begin()));
      if (found != lineup.plan_devices.end()) continue;
      lineup.plan_devices.push_back(id);
      const Device& device = cluster.device(id);
      DeviceProgram& out = program.devices.emplace_back();
      out.name = device.name;
      out.kind = device.kind;
      out.host = cluster.hosts[device.host.index()].name;
      out.isa = device.isa;
      out.cores = device.cores;
      out.memory = device.memory;
    }
  }
  const auto endpoint = [&](HostId host) {
    const std::string& name = cluster.hosts[host.index()].name;
    for (size_t d = 0; d < program.devices.size(); ++d) {
      if (program.devices[d].host == name) return static_cast<int>(d);
    }
    DeviceProgram out;
    out.name = name;
    for (int i = 2;
         std::any_of(program.devices.begin(), program.devices.end(), [&](const auto& d) { return d.name == out.name; });
         ++i) {
      out.name = fmt::format("{}_{}", name, i);  // a device of another host may be called like this host
    }
    out.kind = DeviceKind::host;
    out.host = name;
    out.memory = bytes(int64_t{1} << 60);  // 1 EiB: no limit, it holds the user's data wherever that is
    program.devices.push_back(std::move(out));
    return static_cast<int>(program.devices.size()) - 1;
  };
  lineup.source = endpoint(endpoints.source);
  lineup.sink = endpoint(endpoints.sink);
  return lineup;
}

// Whether one kernel takes equally long on both for certain.
bool alike(const Cluster& cluster, const CostTable& costs, DeviceId a, DeviceId b) {
  if (cluster.device(a).isa != cluster.device(b).isa || cluster.device(a).cores != cluster.device(b).cores ||
      costs.source(a).index() != costs.source(b).index())
    return false;
  if (const Roofline* roofline = std::get_if<Roofline>(&costs.source(a)))
    return *roofline == std::get<Roofline>(costs.source(b));
  const Profile& one = std::get<Profile>(costs.source(a));
  return !one.file.empty() && one.file == std::get<Profile>(costs.source(b)).file;
}

// The times of one stage's phases for a micro-batch on one device. Recomputation counts as part of I.
struct PhaseSeconds {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
};

// Equal computations are looked up once.
class KnownCosts {
 public:
  KnownCosts(const CostTable& costs, DeviceId device) : costs_(costs), device_(device) {}
  Result<double> operator()(size_t distinct, const ComputeDesc& desc, std::string_view layer) {
    const auto found = std::ranges::find(known_, distinct, &std::pair<size_t, double>::first);
    if (found != known_.end()) return found->second;
    ASSIGN_OR_RETURN(const Cost cost, costs_.cost(device_, desc, layer));
    known_.emplace_back(distinct, cost.time.value());
    return cost.time.value();
  }

 private:
  const CostTable& costs_;
  DeviceId device_;
  std::vector<std::pair<size_t, double>> known_;
};

Result<PhaseSeconds> phase_seconds(const KernelGraph& graph, const Stage& stage, const Cluster& cluster,
                                   const CostTable& costs, DeviceId device) {
  const Training* training = graph.training.get();
  const KernelGraph& all = training != nullptr ? training->step : graph;
  const Isa isa = cluster.device(device).isa;
  KnownCosts known(costs, device);
  PhaseSeconds sum{0, 0, 0};
  const auto add = [&](size_t n, double& to) -> Status {
    const Node& node = all.graph.nodes[n];
    if (training != nullptr ? !training->nodes.computed[n] : is_view(node.op)) return ok_status();
    ASSIGN_OR_RETURN(const double time, known(all.kernels.at(isa)[n].same_as, all.chosen.at(isa).descs[n], node.name));
    to += time;
    return ok_status();
  };
  for (size_t n = stage.begin; n < stage.end; ++n) {
    RETURN_IF_ERROR(add(n, sum.forward));
    if (training == nullptr) continue;
    for (const size_t d : training->nodes.derived[n]) {
      switch (training->nodes.phases[d]) {
        case NodePhase::forward:
          RETURN_IF_ERROR(add(d, sum.forward));
          break;
        case NodePhase::input:
          RETURN_IF_ERROR(add(d, sum.input_gradient));
          break;
        case NodePhase::weight:
          RETURN_IF_ERROR(add(d, sum.weight_gradient));
          break;
        case NodePhase::step:  // of no micro-batch
          break;
      }
    }
  }
  if (training != nullptr && training->options.recompute) sum.input_gradient += sum.forward;
  return sum;
}

// [stage][replica]. Forward-only schedules need times only to tell unlike replicas apart, and to interleave the stages
// of one device; everywhere else the order does not depend on them, and looking up costs would take longer than
// lowering. Without costs all are 1 (with recomputation I is 2).
Result<std::vector<std::vector<PhaseSeconds>>> stage_seconds(const KernelGraph& graph, const Plan& plan,
                                                             const Cluster& cluster, const CostTable* costs,
                                                             bool needed) {
  const PhaseSeconds units{1, graph.training && graph.training->options.recompute ? 2.0 : 1.0, 1};
  std::vector<std::vector<PhaseSeconds>> seconds;
  for (const Stage& stage : plan.stages) seconds.emplace_back(stage.devices.size(), units);
  if (costs == nullptr) return seconds;
  const bool unlike = std::any_of(plan.stages.begin(), plan.stages.end(), [&](const Stage& stage) {
    return std::any_of(stage.devices.begin(), stage.devices.end(),
                       [&](DeviceId device) { return !alike(cluster, *costs, device, stage.devices[0]); });
  });
  if (!unlike && !needed && !graph.training) return seconds;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    for (size_t r = 0; r < stage.devices.size(); ++r) {
      const auto same = std::find_if(stage.devices.begin(), stage.devices.begin() + static_cast<std::ptrdiff_t>(r),
                                     [&](DeviceId other) { return alike(cluster, *costs, other, stage.devices[r]); });
      if (const size_t q = static_cast<size_t>(same - stage.devices.begin()); q < r) {
        seconds[s][r] = seconds[s][q];
        continue;
      }
      ASSIGN_OR_RETURN(seconds[s][r], phase_seconds(graph, stage, cluster, *costs, stage.devices[r]));
    }
  }
  return seconds;
}

// [stage]: all messages of a micro-batch to the next stage, between the first devices of both; alone on their way.
Result<std::vector<double>> message_seconds(const KernelGraph& graph, const Plan& plan, const Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::vector<Flow> flows, find_flows(graph, plan));
  std::vector<double> seconds(plan.stages.size(), 0);
  for (size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    const DeviceId from = plan.stages[s].devices[0], to = plan.stages[s + 1].devices[0];
    if (from == to) continue;
    ASSIGN_OR_RETURN(const Route route, find_route(cluster, cluster.device(from).host, cluster.device(to).host));
    for (const Flow& flow : flows) {
      const int next = static_cast<int>(s) + 1;
      if (flow.producer != static_cast<int>(s) || !std::ranges::binary_search(flow.consumers, next)) continue;
      const Bytes size = size_of(graph.graph.values[flow.root.index()].type);
      const MessageCost& cost = size <= cluster.eager_limit ? route.eager : route.rendezvous;
      seconds[s] += (cost.latency + size / cost.bandwidth).value();
    }
  }
  return seconds;
}

// What stages take from each other, if some of them are parts of one that was split inside its layers.
Status add_needs(const KernelGraph& graph, const Plan& plan, ScheduleInput& schedule) {
  std::set<int> whole;
  for (const Stage& stage : plan.stages) whole.insert(stage.part_of);
  if (whole.contains(-1)) return ok_status();
  schedule.pipeline_stages = static_cast<int>(whole.size());
  schedule.needs.resize(plan.stages.size());
  ASSIGN_OR_RETURN(const std::vector<Flow> flows, find_flows(graph, plan));
  for (const Flow& flow : flows) {
    for (const int consumer : flow.consumers) {
      if (flow.producer == source_stage || at(consumer) >= plan.stages.size()) continue;
      std::vector<int>& needs = schedule.needs[at(consumer)];
      if (std::ranges::find(needs, flow.producer) == needs.end()) needs.push_back(flow.producer);
    }
  }
  return ok_status();
}

// all_times: also where the order does not depend on them.
Result<ScheduleInput> make_schedule_input(const KernelGraph& graph, const Plan& plan, const Lineup& lineup,
                                          const Cluster& cluster, const CostTable* costs, bool all_times) {
  ScheduleInput schedule;
  schedule.micro_batches = plan.micro_batches;
  schedule.devices = static_cast<int>(lineup.plan_devices.size());
  schedule.stage_devices = lineup.stage_devices;
  RETURN_IF_ERROR(add_needs(graph, plan, schedule));
  size_t hosted = 0;
  for (const Stage& stage : plan.stages) hosted += stage.devices.size();
  const bool needed = all_times || hosted > lineup.plan_devices.size();
  ASSIGN_OR_RETURN(const auto seconds, stage_seconds(graph, plan, cluster, costs, needed));
  for (const std::vector<PhaseSeconds>& stage : seconds) {
    std::vector<double>& forward = schedule.stage_seconds.emplace_back();
    for (const PhaseSeconds& replica : stage) forward.push_back(replica.forward);
    if (!graph.training) continue;
    std::vector<double>& input = schedule.input_gradient_seconds.emplace_back();
    std::vector<double>& weight = schedule.weight_gradient_seconds.emplace_back();
    for (const PhaseSeconds& replica : stage) {
      input.push_back(replica.input_gradient);
      weight.push_back(replica.weight_gradient);
    }
  }
  if (costs != nullptr && (needed || graph.training)) {
    ASSIGN_OR_RETURN(schedule.message_seconds, message_seconds(graph, plan, cluster));
  }
  if (!graph.training) return schedule;
  for (const DeviceId device : lineup.plan_devices) schedule.device_memory.push_back(cluster.device(device).memory);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StageMemory memory = stage_memory(graph, plan.stages[s]);
    schedule.kept_until_input_gradient.push_back(memory.kept_until_input);
    schedule.kept_until_weight_gradient.push_back(memory.kept_until_weights);
    for (const int device : lineup.stage_devices[s]) {
      Bytes& left = schedule.device_memory[at(device)];
      left = std::max(bytes(0), left - memory.weights);
    }
  }
  return schedule;
}

Result<Placement> place(const Plan& plan, const Lineup& lineup, const ScheduleInput& schedule, const SlotTable& table,
                        size_t devices) {
  Placement placement;
  placement.micro_batches = plan.micro_batches;
  placement.stages = static_cast<int>(plan.stages.size());
  placement.devices = static_cast<int>(devices);
  placement.source = lineup.source;
  placement.sink = lineup.sink;
  placement.in_flight = table.in_flight;
  placement.needs = stage_needs(schedule);
  placement.stage_device.assign(plan.stages.size(), std::vector<int>(at(plan.micro_batches), -1));
  for (size_t d = 0; d < table.devices.size(); ++d) {
    for (const ScheduledSlot& slot : table.devices[d]) {
      if (slot.phase != Phase::forward)
        return unsupported(fmt::format("schedule {}: only forward slots can be lowered", plan.schedule));
      placement.stage_device[at(slot.stage)][at(slot.micro_batch)] = static_cast<int>(d);
    }
  }
  for (const std::vector<int>& stage : placement.stage_device) {
    CHECK(std::find(stage.begin(), stage.end(), -1) == stage.end(), "a schedule left a micro-batch out");
  }
  return placement;
}

// At the sink the first output of a root is the root's storage. Others of the same root, and inputs that are outputs
// where source and sink are one device, are copied.
void place_outputs(const KernelGraph& graph, Placement& placement, LowerInput& input) {
  std::vector<bool> stored(graph.graph.values.size(), false);
  for (size_t i = 0; i < graph.graph.outputs.size(); ++i) {
    const ValueId root = graph.root[graph.graph.outputs[i].index()];
    const bool held = graph.graph.value(root).kind == ValueKind::input && placement.source == placement.sink;
    if (held || stored[root.index()])
      input.copied_outputs.push_back(i);
    else
      stored[root.index()] = true;
  }
  placement.sink_copies = !input.copied_outputs.empty();
}

// Messages travel in the layout they are made in where all devices of the cluster have one level, so blocks of one
// size; else row-major. Inputs and outputs are row-major in any case.
std::vector<int> flow_blocks(const KernelGraph& graph, const Cluster& cluster, int stages,
                             const std::vector<Flow>& flows) {
  std::vector<int> blocks(flows.size(), 0);
  const Isa isa = cluster.devices[0].isa;
  if (std::ranges::any_of(cluster.devices, [&](const Device& device) { return device.isa != isa; })) return blocks;
  for (size_t f = 0; f < flows.size(); ++f) {
    if (flows[f].producer == source_stage || flows[f].consumers.back() == stages) continue;
    blocks[f] = graph.chosen.at(isa).made_in[flows[f].root.index()];
  }
  return blocks;
}

int64_t samples_of(const Graph& graph) {
  if (graph.inputs.empty() || graph.value(graph.inputs[0]).type.shape.empty()) return 1;
  return graph.value(graph.inputs[0]).type.shape[0];
}

std::string program_name(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  return fmt::format("{} [{}]", graph.name, fmt::join(stage_parts(plan, graph, cluster), ", "));
}

// A Program with its devices, and nothing on them.
Result<Program> empty_program(const KernelGraph& graph, const Plan& plan, const Cluster& cluster) {
  CHECK(graph.root.size() == graph.graph.values.size(), "a KernelGraph that choose_kernels did not make");
  CHECK(!has_splits(plan), "a plan that splits layers, and nobody has expanded it");
  const int64_t batch = samples_of(graph.graph) * plan.micro_batches;
  RETURN_IF_ERROR(check_plan(plan, graph.graph, cluster, batch, graph.input_parts));
  for (const Stage& stage : plan.stages) {
    for (const DeviceId id : stage.devices) {
      const Device& device = cluster.device(id);
      if (!graph.kernels.contains(device.isa)) {
        return invalid_input(
            fmt::format("no kernels were chosen for level {} of device {}", name_of(device.isa), device.name));
      }
    }
  }
  Program program;
  program.name = program_name(plan, graph.graph, cluster);
  program.batch = batch;
  program.micro_batches = plan.micro_batches;
  program.eager_limit = cluster.eager_limit;
  program.nic_window = cluster.nic_window;
  return program;
}

Result<Program> lower_forward(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const Lineup& lineup,
                              const ScheduleInput& schedule, const SlotTable& table, Program program) {
  ASSIGN_OR_RETURN(const std::vector<Flow> flows, find_flows(graph, plan));
  ASSIGN_OR_RETURN(Placement placement, place(plan, lineup, schedule, table, program.devices.size()));
  LowerInput input;
  place_outputs(graph, placement, input);
  std::vector<std::vector<double>> seconds(plan.stages.size(), std::vector<double>(at(plan.micro_batches)));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (size_t m = 0; m < seconds[s].size(); ++m) {
      const std::vector<int>& replicas = lineup.stage_devices[s];
      const auto replica = std::find(replicas.begin(), replicas.end(), placement.stage_device[s][m]) - replicas.begin();
      seconds[s][m] = schedule.stage_seconds[s][static_cast<size_t>(replica)];
    }
  }
  ASSIGN_OR_RETURN(const Orders orders, make_orders(flows, placement, table, seconds));

  input.graph = &graph;
  input.plan = &plan;
  input.placement = &placement;
  input.flows = &flows;
  input.flow_block = flow_blocks(graph, cluster, static_cast<int>(plan.stages.size()), flows);
  input.banks = std::max(table.banks, table.room);
  input.flow_of.assign(graph.graph.values.size(), -1);
  for (size_t f = 0; f < flows.size(); ++f) input.flow_of[flows[f].root.index()] = static_cast<int>(f);
  std::map<Isa, std::vector<int>> interned;
  for (size_t d = 0; d < program.devices.size(); ++d)
    lower_device(input, orders[d], static_cast<int>(d), interned, program);
  return program;
}

// table: nullptr: what the plan's policy makes.
Result<Program> lower_with(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                           const Endpoints& endpoints, const CostTable* costs, const SlotTable* table) {
  CHECK(endpoints.source.index() < cluster.hosts.size() && endpoints.sink.index() < cluster.hosts.size(),
        "unknown endpoints");
  ASSIGN_OR_RETURN(Program program, empty_program(graph, plan, cluster));
  // A training step ends with its updates: it has nothing to deliver.
  const Lineup lineup =
      line_up(plan, cluster, {endpoints.source, graph.training ? endpoints.source : endpoints.sink}, program);
  ASSIGN_OR_RETURN(const ScheduleInput schedule, make_schedule_input(graph, plan, lineup, cluster, costs, false));
  SlotTable made;
  if (table == nullptr) {
    ASSIGN_OR_RETURN(made, make_schedule(plan.schedule, schedule));
    table = &made;
  }
  if (!graph.training) return lower_forward(graph, plan, cluster, lineup, schedule, *table, std::move(program));
  const bool trains = std::ranges::any_of(table->devices, [](const std::vector<ScheduledSlot>& order) {
    return std::ranges::any_of(order, [](const ScheduledSlot& slot) { return slot.phase == Phase::step; });
  });
  if (!trains) return unsupported(fmt::format("schedule {} is for inference: it has no backward slots", plan.schedule));
  RETURN_IF_ERROR(lower_training(
      {.graph = &graph, .plan = &plan, .table = table, .schedule = &schedule, .source = lineup.source}, program));
  return program;
}

}  // namespace

Result<Program> lower(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const Endpoints& endpoints,
                      const CostTable* costs) {
  return lower_with(graph, plan, cluster, endpoints, costs, nullptr);
}

Result<Program> lower_table(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                            const Endpoints& endpoints, const CostTable* costs, const SlotTable& table) {
  return lower_with(graph, plan, cluster, endpoints, costs, &table);
}

Result<ScheduleInput> schedule_input(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                                     const CostTable* costs) {
  ASSIGN_OR_RETURN(Program program, empty_program(graph, plan, cluster));
  return make_schedule_input(graph, plan, line_up(plan, cluster, {HostId(0), HostId(0)}, program), cluster, costs,
                             true);
}

Result<Program> lower_unsplit(const KernelGraph& graph, int micro_batches, const Device& device,
                              const std::string& host) {
  Cluster cluster;
  cluster.hosts.push_back({host, false});
  cluster.devices.push_back(device);
  cluster.devices[0].host = HostId(0);
  Plan plan;
  plan.stages.push_back({graph.input_parts, graph.graph.nodes.size(), {DeviceId(0)}});
  plan.micro_batches = micro_batches;
  if (graph.training) plan.schedule = "1f1b";  // on one device the least memory
  return lower(graph, plan, cluster, {HostId(0), HostId(0)}, nullptr);
}

}  // namespace nlsplit
