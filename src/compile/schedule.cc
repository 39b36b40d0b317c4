// Pass `schedule`: the input of a schedule, and the table that the schedule makes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "compile/lowering.h"
#include "compile/stage_memory.h"
#include "cost/messages.h"
#include "partition/score.h"
#include "schedule/assign.h"
#include "schedule/online_choice.h"

namespace nlsplit::inline compiler {
namespace {

// The times of one stage's phases for a micro-batch on one device. Recomputation counts as part of I.
struct PhaseSeconds {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
};

Result<PhaseSeconds> phase_seconds(const Lowering& lowering, size_t stage, DeviceId device) {
  const auto sum_of = [&](const std::vector<size_t>& nodes) -> Result<double> {
    ASSIGN_OR_RETURN(const std::vector<double> times, node_seconds(lowering, device, nodes));
    return std::accumulate(times.begin(), times.end(), 0.0);
  };
  PhaseSeconds seconds;
  ASSIGN_OR_RETURN(seconds.forward, sum_of(lowering.nodes.forward[stage]));
  ASSIGN_OR_RETURN(seconds.input_gradient, sum_of(lowering.nodes.input[stage]));
  ASSIGN_OR_RETURN(seconds.weight_gradient, sum_of(lowering.nodes.weight[stage]));
  if (lowering.recomputes(static_cast<int>(stage))) seconds.input_gradient += seconds.forward;
  return seconds;
}

// [stage][replica]. Forward-only schedules need times only to tell unlike replicas apart, and to interleave the stages
// of one device; everywhere else the order does not depend on them, and looking up costs would take longer than
// lowering. Without costs all are 1 (with recomputation I is 2).
Result<std::vector<std::vector<PhaseSeconds>>> stage_seconds(const Lowering& lowering, bool needed) {
  const std::vector<Stage>& stages = lowering.plan->stages;
  std::vector<std::vector<PhaseSeconds>> seconds;
  for (size_t s = 0; s < stages.size(); ++s) {
    const PhaseSeconds units{1, lowering.recomputes(static_cast<int>(s)) ? 2.0 : 1.0, 1};
    seconds.emplace_back(stages[s].devices.size(), units);
  }
  if (lowering.costs == nullptr) return seconds;
  const auto same = [&](DeviceId a, DeviceId b) { return same_costs(a, b, *lowering.cluster, *lowering.costs); };
  const bool unlike = std::ranges::any_of(stages, [&](const Stage& stage) {
    return std::ranges::any_of(stage.devices, [&](DeviceId device) { return !same(device, stage.devices[0]); });
  });
  if (!unlike && !needed && lowering.training == nullptr) return seconds;
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::vector<DeviceId>& devices = stages[s].devices;
    for (size_t r = 0; r < devices.size(); ++r) {
      const auto before = devices.begin() + static_cast<std::ptrdiff_t>(r);
      const auto twin = std::find_if(devices.begin(), before, [&](DeviceId other) { return same(other, devices[r]); });
      if (twin != before) {
        seconds[s][r] = seconds[s][static_cast<size_t>(twin - devices.begin())];
        continue;
      }
      ASSIGN_OR_RETURN(seconds[s][r], phase_seconds(lowering, s, devices[r]));
    }
  }
  return seconds;
}

// Where replicas reduce the gradients of each micro-batch, all are as fast as the slowest one.
void wait_for_each_other(std::vector<std::vector<PhaseSeconds>>& seconds) {
  for (std::vector<PhaseSeconds>& replicas : seconds) {
    PhaseSeconds slowest = replicas[0];
    for (const PhaseSeconds& one : replicas) {
      slowest.forward = std::max(slowest.forward, one.forward);
      slowest.input_gradient = std::max(slowest.input_gradient, one.input_gradient);
      slowest.weight_gradient = std::max(slowest.weight_gradient, one.weight_gradient);
    }
    std::ranges::fill(replicas, slowest);
  }
}

// [stage]: all messages of a micro-batch to the next stage, between the first devices of both, without contention.
Result<std::vector<double>> message_seconds(const Lowering& lowering) {
  const size_t stages = lowering.plan->stages.size();
  std::vector<double> seconds(stages, 0);
  for (size_t s = 0; s + 1 < stages; ++s) {
    const int from = lowering.stage_devices[s][0], to = lowering.stage_devices[s + 1][0];
    if (from == to) continue;
    for (const Flow& flow : lowering.flows) {
      const int next = static_cast<int>(s) + 1;
      if (flow.producer != static_cast<int>(s) || !std::ranges::binary_search(flow.consumers, next)) continue;
      ASSIGN_OR_RETURN(const double one, flow_seconds(lowering, flow, from, to));
      seconds[s] += one;
    }
  }
  return seconds;
}

// Adds a message of a micro-batch between two hosts.
Status add_to_way(Way& way, const Cluster& cluster, HostId from, HostId to, Bytes size) {
  if (from == to) return ok_status();
  ASSIGN_OR_RETURN(const Route route, find_route(cluster, from, to));
  const MessageCost& cost = size <= cluster.eager_limit ? route.eager : route.rendezvous;
  way.seconds += (cost.latency + size / cost.bandwidth).value();
  for (const Hop& hop : route.hops) {
    if (!cluster.links[hop.link.index()].shared) continue;
    const auto lane = static_cast<uint32_t>(lane_of(cluster, hop));
    const double busy = (size / cluster.links[hop.link.index()].bandwidth).value();
    add_lane(way.lanes, lane, busy);
  }
  return ok_status();
}

bool alike(const std::vector<Way>& ways) {
  std::vector<LaneSeconds> lanes;
  for (const Way& way : ways) lanes.push_back(way.lanes);
  return std::ranges::all_of(ways, [&](const Way& way) { return way.seconds == ways[0].seconds; }) && alike_ways(lanes);
}

// Of stages whose replicas differ, or are not reached alike. Messages between two stages with replicas spread over many
// links: those are no reason to give one replica more than another.
Status add_ways(const Lowering& lowering, ScheduleInput& schedule) {
  const std::vector<Stage>& stages = lowering.plan->stages;
  const Cluster& cluster = *lowering.cluster;
  const auto host_of = [&](int device) {
    if (at(device) < lowering.devices.size()) return cluster.device(lowering.devices[at(device)]).host;
    return device == lowering.source ? lowering.endpoints.source : lowering.endpoints.sink;
  };
  const auto ways_of = [&](int stage, bool in) -> Result<std::vector<Way>> {
    const std::vector<int>& replicas = lowering.stage_devices[at(stage)];
    std::vector<Way> ways(replicas.size());
    for (const Flow& flow : lowering.flows) {
      const bool from_one = flow.producer == source_stage || lowering.stage_devices[at(flow.producer)].size() == 1;
      const int to = in ? stage : static_cast<int>(stages.size());
      if (!std::ranges::binary_search(flow.consumers, to) || (in ? !from_one : flow.producer != stage)) continue;
      const Bytes size = size_of(traveling(lowering.graph->graph.value(flow.root).type, flow.travels_as));
      for (size_t r = 0; r < replicas.size(); ++r) {
        const int other = !in                             ? lowering.sink
                          : flow.producer == source_stage ? lowering.source
                                                          : lowering.stage_devices[at(flow.producer)][0];
        if (other == replicas[r]) continue;
        const HostId here = host_of(replicas[r]), there = host_of(other);
        RETURN_IF_ERROR(add_to_way(ways[r], cluster, in ? there : here, in ? here : there, size));
      }
    }
    const std::vector<DeviceId>& devices = stages[at(stage)].devices;
    const bool equal = std::ranges::all_of(
        devices, [&](DeviceId device) { return same_costs(device, devices[0], cluster, *lowering.costs); });
    if (equal && alike(ways)) ways.clear();
    return ways;
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].devices.size() < 2) continue;
    schedule.ways_in.resize(stages.size());
    schedule.ways_out.resize(stages.size());
    ASSIGN_OR_RETURN(schedule.ways_in[s], ways_of(static_cast<int>(s), true));
    ASSIGN_OR_RETURN(schedule.ways_out[s], ways_of(static_cast<int>(s), false));
  }
  const auto none = [](const std::vector<std::vector<Way>>& ways) {
    return std::ranges::all_of(ways, [](const std::vector<Way>& of) { return of.empty(); });
  };
  if (none(schedule.ways_in)) schedule.ways_in.clear();
  if (none(schedule.ways_out)) schedule.ways_out.clear();
  return ok_status();
}

// What stages take from each other, if some of them are parts of one that was split inside its layers.
void add_needs(const Lowering& lowering, ScheduleInput& schedule) {
  const std::vector<Stage>& stages = lowering.plan->stages;
  std::set<int> whole;
  for (const Stage& stage : stages) whole.insert(stage.part_of);
  if (whole.contains(-1)) return;
  schedule.pipeline_stages = static_cast<int>(whole.size());
  schedule.needs.resize(stages.size());
  for (const Flow& flow : lowering.flows) {
    for (const int consumer : flow.consumers) {
      if (flow.backward || flow.producer == source_stage || at(consumer) >= stages.size()) continue;
      std::vector<int>& needs = schedule.needs[at(consumer)];
      if (std::ranges::find(needs, flow.producer) == needs.end()) needs.push_back(flow.producer);
    }
  }
}

bool trains(const SlotTable& table) {
  return std::ranges::any_of(table.devices, [](const std::vector<ScheduledSlot>& order) {
    return std::ranges::any_of(order, [](const ScheduledSlot& slot) { return slot.phase == Phase::step; });
  });
}

// For an online policy: sets the policy, and makes the table of its base schedule.
Result<SlotTable> online_table(Lowering& lowering) {
  ASSIGN_OR_RETURN(const OnlineChoice choice, parse_online_choice(lowering.plan->schedule));
  Online& online = lowering.online.emplace();
  online.policy = choice.policy;
  if (!choice.replay.empty()) {
    ASSIGN_OR_RETURN(SlotTable decided, decisions_to_replay(choice, lowering.schedule));
    online.policy = replay_policy().name;
    online.table = std::move(decided.devices);
  }
  return make_online_base(choice, lowering.schedule);
}

}  // namespace

Result<double> flow_seconds(const Lowering& lowering, const Flow& flow, int from, int to) {
  const Cluster& cluster = *lowering.cluster;
  const auto host_of = [&](int device) { return cluster.device(lowering.devices[at(device)]).host; };
  if (from == to) return 0.0;
  ASSIGN_OR_RETURN(const Route route, find_route(cluster, host_of(from), host_of(to)));
  const Bytes size = size_of(traveling(lowering.graph->graph.value(flow.root).type, flow.travels_as));
  const MessageCost& cost = size <= cluster.eager_limit ? route.eager : route.rendezvous;
  return (cost.latency + size / cost.bandwidth).value();
}

Result<std::vector<double>> node_seconds(const Lowering& lowering, DeviceId device, const std::vector<size_t>& nodes) {
  const KernelGraph& graph = *lowering.graph;
  const Level level = lowering.cluster->device(device).level;
  std::vector<std::pair<size_t, double>> known;  // equal computations are looked up once
  std::vector<double> seconds;
  for (const size_t n : nodes) {
    const size_t distinct = graph.kernels.at(level)[n].same_as;
    const auto found = std::ranges::find(known, distinct, &std::pair<size_t, double>::first);
    if (found != known.end()) {
      seconds.push_back(found->second);
      continue;
    }
    ASSIGN_OR_RETURN(const Cost cost,
                     lowering.costs->cost(device, graph.chosen.at(level).descs[n], graph.graph.nodes[n].name));
    known.emplace_back(distinct, cost.time.value());
    seconds.push_back(cost.time.value());
  }
  return seconds;
}

Result<ScheduleInput> make_schedule_input(const Lowering& lowering, bool all_times) {
  const bool training = lowering.training != nullptr;
  ScheduleInput schedule;
  schedule.micro_batches = lowering.micro_batches();
  schedule.devices = static_cast<int>(lowering.devices.size());
  schedule.stage_devices = lowering.stage_devices;
  add_needs(lowering, schedule);
  size_t hosted = 0;
  for (const std::vector<int>& replicas : lowering.stage_devices) hosted += replicas.size();
  if (lowering.costs != nullptr && !training) RETURN_IF_ERROR(add_ways(lowering, schedule));
  const bool needed =
      all_times || hosted > lowering.devices.size() || !schedule.ways_in.empty() || !schedule.ways_out.empty();
  ASSIGN_OR_RETURN(auto seconds, stage_seconds(lowering, needed));
  if (lowering.zero > (training ? 1 : 2)) wait_for_each_other(seconds);
  for (const std::vector<PhaseSeconds>& stage : seconds) {
    std::vector<double>& forward = schedule.stage_seconds.emplace_back();
    for (const PhaseSeconds& replica : stage) forward.push_back(replica.forward);
    if (!training) continue;
    std::vector<double>& input = schedule.input_gradient_seconds.emplace_back();
    std::vector<double>& weight = schedule.weight_gradient_seconds.emplace_back();
    for (const PhaseSeconds& replica : stage) {
      input.push_back(replica.input_gradient);
      weight.push_back(replica.weight_gradient);
    }
  }
  if (lowering.costs != nullptr && (needed || training)) {
    ASSIGN_OR_RETURN(schedule.message_seconds, message_seconds(lowering));
  }
  if (!training) return schedule;
  for (const DeviceId device : lowering.devices)
    schedule.device_memory.push_back(lowering.cluster->device(device).memory);
  for (size_t s = 0; s < lowering.plan->stages.size(); ++s) {
    const StageMemory memory =
        stage_memory(*lowering.network, lowering.plan->stages[s], lowering.recomputes(static_cast<int>(s)));
    schedule.kept_until_input_gradient.push_back(memory.kept_until_input);
    schedule.kept_until_weight_gradient.push_back(memory.kept_until_weights);
    for (const int device : lowering.stage_devices[s]) {
      Bytes& left = schedule.device_memory[at(device)];
      left = std::max(bytes(0), left - memory.weights);
    }
  }
  return schedule;
}

Status schedule(Lowering& lowering, const SlotTable* table) {
  ASSIGN_OR_RETURN(lowering.schedule, make_schedule_input(lowering, false));
  lowering.needs = stage_needs(lowering.schedule);
  SlotTable made;
  if (table != nullptr) {
    made = *table;
  } else if (is_online(lowering.plan->schedule)) {
    if (lowering.training != nullptr && lowering.plan->stages.front().part_of >= 0)
      return unsupported(fmt::format("schedule {} decides while a step runs: training that splits layers has an order",
                                     lowering.plan->schedule));
    ASSIGN_OR_RETURN(made, online_table(lowering));
  } else {
    ASSIGN_OR_RETURN(const std::optional<ScheduleInput> grouped, grouped_input(lowering, lowering.schedule));
    ScheduleInput input = grouped ? *grouped : lowering.schedule;
    if (lowering.training != nullptr) input.needs.clear();  // gradients go from each stage to the one before
    ASSIGN_OR_RETURN(made, make_schedule(lowering.plan->schedule, input));
    if (grouped) made = written_out(lowering, made);
  }
  if (lowering.training != nullptr && !trains(made)) {
    return unsupported(fmt::format("schedule {} is for inference: it has no backward slots", lowering.plan->schedule));
  }
  RETURN_IF_ERROR(complete_table(lowering, std::move(made)));
  find_joint_stages(lowering);
  if (lowering.training != nullptr) {
    if (lowering.exact) RETURN_IF_ERROR(check_sums(lowering));
    RETURN_IF_ERROR(choose_reductions(lowering));
  }
  return choose_gathers(lowering);
}

}  // namespace nlsplit::inline compiler
