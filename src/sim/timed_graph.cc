// Program → TimedGraph. Ranking does this for every candidate, so everything is a vector and nothing is looked up by
// name per instance.
#include "sim/timed_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "program/data_movement.h"
#include "program/text.h"
#include "sim/online.h"

namespace nlsplit::inline sim {
namespace {

enum class Kind : uint8_t { compute, send, recv };
constexpr uint32_t no_activity = ~0u;

// An edge between activities, before they have their final numbers.
struct RawEdge {
  uint32_t from, to;
  Event when;
  Gate what;
};

class Builder {
 public:
  Builder(const Program& program, const Dependencies& deps, const Cluster& cluster, const CostTable& costs,
          const ScalarTable& scalars)
      : program_(program),
        deps_(deps),
        cluster_(cluster),
        costs_(costs),
        scalars_(scalars),
        free_(!deps.free_slots.empty()) {
    if (free_) graph_.online.emplace();
  }

  Result<TimedGraph> run() {
    CHECK(deps_.device_begin.size() == program_.devices.size() + 1, "dependencies of another program");
    graph_.nic_window = program_.nic_window;
    RETURN_IF_ERROR(place_devices());
    classify();
    find_cuts();
    RETURN_IF_ERROR(make_activities());
    make_edges();
    find_machines();
    find_two_way_traffic();
    RETURN_IF_ERROR(sort());
    return std::move(graph_);
  }

 private:
  // Where each device stands: its cluster device (for costs) and its host (for routes).
  Status place_devices() {
    std::vector<int> dense(cluster_.hosts.size(), -1);
    for (const DeviceProgram& device : program_.devices) {
      const HostId host = cluster_.find_host(device.host);
      if (!host.valid()) {
        return invalid_input(
            fmt::format("device {} is on host '{}', which the cluster does not have", device.name, device.host));
      }
      DeviceId id;
      if (device.kind != DeviceKind::host) {
        id = cluster_.find_device(device.name);
        if (!id.valid()) return invalid_input(fmt::format("the cluster has no device {}", device.name));
        if (cluster_.device(id).host != host) {
          return invalid_input(fmt::format("device {} is on host '{}' in the program, but not in the cluster",
                                           device.name, device.host));
        }
      }
      int& number = dense[host.index()];
      if (number < 0) {
        number = static_cast<int>(hosts_.size());
        hosts_.push_back(host);
      }
      graph_.host_of_device.push_back(number);
      device_ids_.push_back(id);
    }
    route_of_.assign(hosts_.size() * hosts_.size(), -1);
    return ok_status();
  }

  void classify() {
    kinds_.reserve(deps_.instances.size());
    size_t computed = 0;
    for (const DeviceProgram& device : program_.devices) {
      for (const Slot& slot : device.order) {
        for (const Instr& instr : device.segments[static_cast<size_t>(slot.segment)].instrs) {
          const Kind kind = instr.opcode == Opcode::send   ? Kind::send
                            : instr.opcode == Opcode::recv ? Kind::recv
                                                           : Kind::compute;
          kinds_.push_back(kind);
          computed += kind == Kind::compute ? 1 : 0;
        }
      }
    }
    CHECK(kinds_.size() == deps_.instances.size(), "dependencies of another program");
    graph_.members.reserve(computed);
    graph_.member_offset.reserve(computed);
  }

  // A block ends where another stream waits for one of its instances, and begins where one waits for another stream.
  void find_cuts() {
    cut_before_.assign(kinds_.size(), false);
    cut_after_.assign(kinds_.size(), false);
    for (uint32_t i = 0; i < kinds_.size(); ++i) {
      for (const Edge& edge : deps_.into(i)) {
        if (kinds_[i] == Kind::compute && kinds_[edge.from] != Kind::compute) cut_before_[i] = true;
        if (kinds_[i] != Kind::compute && kinds_[edge.from] == Kind::compute) cut_after_[edge.from] = true;
      }
    }
  }

  Status make_activities() {
    activity_of_.assign(kinds_.size(), no_activity);
    const bool any_scalars = !scalars_.values.empty();
    raw_.reserve(deps_.edges.size());  // of those in the compute stream one for each block is left
    uint32_t instance = 0;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      const DeviceProgram& device = program_.devices[d];
      std::vector<std::vector<Duration>> seconds(device.segments.size());  // [segment][instruction]
      desc_seconds_.assign(program_.descs.size(), {-1, 0});
      scalar_seconds_.clear();
      uint32_t block = no_activity;  // the last one of this device's compute stream
      for (size_t s = 0; s < device.order.size(); ++s) {
        const Segment& segment = device.segments[static_cast<size_t>(device.order[s].segment)];
        if (free_) block = no_activity;  // of this slot
        std::vector<Duration>& times = seconds[static_cast<size_t>(device.order[s].segment)];
        if (times.size() != segment.instrs.size()) {
          ASSIGN_OR_RETURN(times, segment_seconds(d, segment));
        }
        bool cut = true;  // a block stays within a slot, so that a micro-batch's latency is exact
        for (size_t i = 0; i < segment.instrs.size(); ++i, ++instance) {
          if (kinds_[instance] == Kind::compute) {
            if (cut || cut_before_[instance]) {
              const auto next = static_cast<uint32_t>(activities_.size());
              activities_.push_back(
                  {.device = static_cast<int>(d), .first_instance = static_cast<uint32_t>(graph_.members.size())});
              if (block != no_activity) raw_.push_back({block, next, Event::delivered, Gate::start});
              block = next;
              if (free_) note_block(d, s, next);
            }
            Activity& activity = activities_[block];
            graph_.members.push_back(instance);
            graph_.member_offset.push_back(activity.duration);
            Duration time = times[i];  // with the largest scalars
            if (any_scalars && !scalars_.of(instance).empty()) {
              ASSIGN_OR_RETURN(time, scalar_seconds(d, segment.instrs[i], instance));
            }
            activity.duration += time.alone;
            activity.company += time.company;
            ++activity.count;
            activity_of_[instance] = block;
            cut = cut_after_[instance];
          } else if (activity_of_[instance] == no_activity) {
            RETURN_IF_ERROR(make_transfer(kinds_[instance] == Kind::send ? instance : deps_.match[instance]));
          }
        }
      }
    }
    return ok_status();
  }

  struct Duration {
    double alone, company;
  };

  Result<std::vector<Duration>> segment_seconds(size_t d, const Segment& segment) {
    std::vector<Duration> times;
    times.reserve(segment.instrs.size());
    for (const Instr& instr : segment.instrs) {
      Duration time{0, 0};
      if (instr.opcode == Opcode::compute) {
        ASSIGN_OR_RETURN(time, compute_seconds(d, instr));
      } else if (!is_transfer(instr.opcode)) {
        ASSIGN_OR_RETURN(time.alone, movement_seconds(d, instr));
      }
      times.push_back(time);
    }
    return times;
  }

  Result<Duration> compute_seconds(size_t d, const Instr& instr) {
    Duration& known = desc_seconds_[static_cast<size_t>(instr.desc)];
    if (known.alone < 0) {
      if (!device_ids_[d].valid())
        return invalid_input(fmt::format("device {} is an endpoint and computes nothing", program_.devices[d].name));
      ASSIGN_OR_RETURN(const Cost cost,
                       costs_.cost(device_ids_[d], program_.descs[static_cast<size_t>(instr.desc)], instr.label));
      known = {cost.time.value(), cost.company.value()};
    }
    return known;
  }

  Result<Duration> scalar_seconds(size_t d, const Instr& instr, uint32_t instance) {
    const auto [known, added] = scalar_seconds_.try_emplace({instr.desc, scalars_.row[instance]}, Duration{0, 0});
    if (added) {
      ASSIGN_OR_RETURN(const Cost cost, costs_.cost(device_ids_[d], program_.descs[static_cast<size_t>(instr.desc)],
                                                    instr.label, scalars_.of(instance)));
      known->second = {cost.time.value(), cost.company.value()};
    }
    return known->second;
  }

  Result<double> movement_seconds(size_t d, const Instr& instr) const {
    if (!device_ids_[d].valid()) return 0.0;
    const DeviceProgram& device = program_.devices[d];
    const ComputeDesc desc = movement_desc(device, instr);
    ASSIGN_OR_RETURN(const Cost cost, costs_.cost(device_ids_[d], desc, instr.label));
    return cost.time.value();
  }

  Status make_transfer(uint32_t send) {
    const Instance& at = deps_.instances[send];
    const Instr& instr = instr_of(program_, at);
    const Bytes size = bytes_of(program_.devices[static_cast<size_t>(at.device)], instr.reads[0]);
    Activity activity;
    activity.is_transfer = true;
    activity.eager = size <= program_.eager_limit;
    activity.waits = !activity.eager;
    activity.device = at.device;
    activity.peer = instr.peer;
    activity.first_instance = send;
    activity.count = 1;
    activity.bytes = static_cast<double>(size.value());
    if (instr.peer != at.device) {
      ASSIGN_OR_RETURN(activity.route, route_between(at.device, instr.peer));
      const Route& route = graph_.routes[static_cast<size_t>(activity.route)];
      const MessageCost& cost = activity.eager ? route.eager : route.rendezvous;
      activity.waits = !activity.eager && !route.starts_early;
      activity.duration = (size / cost.bandwidth).value();
      activity.latency = (activity.waits ? route.eager : cost).latency.value();
      if (activity.waits) activity.request = (std::min(size, program_.eager_limit) / cost.bandwidth).value();
      activity.queued = route.overheads.held;
      activity.streams = route.starts_early && activity.queued > 0;
      graph_.has_queues = graph_.has_queues || activity.queued > 0;
      if (!activity.eager) {
        if (activity.waits) activity.handshake = std::max(0.0, (cost.latency - route.eager.latency).value());
        activity.slowed = route.overheads.slowed;
        activity.handover = route.overheads.handover * static_cast<double>((size - program_.eager_limit).value());
        activity.busy = route.overheads.busy;
        if (activity.waits) activity.clear_to_send_delay = route.clear_to_send_delay.value();
      }
      activity.sender_overhead = route.overheads.sender * activity.bytes;
      activity.receiver_overhead = route.overheads.receiver * activity.bytes;
      if (activity.sender_overhead > 0 || activity.receiver_overhead > 0 || activity.slowed > 0 || activity.busy > 0)
        graph_.has_overheads = true;
      if (cost.bandwidth != route.narrowest) activity.bytes = activity.duration * route.narrowest.value();
    }
    activity_of_[send] = activity_of_[deps_.match[send]] = static_cast<uint32_t>(activities_.size());
    activities_.push_back(activity);
    return ok_status();
  }

  Result<int> route_between(int from, int to) {
    const auto a = static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(from)]);
    const auto b = static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(to)]);
    int& index = route_of_[a * hosts_.size() + b];
    if (index < 0) {
      ASSIGN_OR_RETURN(Route route, find_route(cluster_, hosts_[a], hosts_[b]));
      if (!(route.narrowest.value() > 0) || !(route.eager.latency.value() >= 0)) {
        return invalid_input(fmt::format("the way from host '{}' to host '{}' has no bandwidth, or a negative latency",
                                         cluster_.hosts[hosts_[a].index()].name,
                                         cluster_.hosts[hosts_[b].index()].name));
      }
      index = static_cast<int>(graph_.routes.size());
      graph_.routes.push_back(std::move(route));
    }
    return index;
  }

  void make_edges() {
    for (uint32_t i = 0; i < kinds_.size(); ++i) {
      for (const Edge& edge : deps_.into(i)) {
        const Kind from = kinds_[edge.from];
        if (from == Kind::compute && kinds_[i] == Kind::compute) continue;  // make_activities chains a device's blocks
        const Gate what = kinds_[i] == Kind::recv ? Gate::post : Gate::start;
        Event when = Event::delivered;
        if (from == Kind::send) {
          const Activity& transfer = activities_[activity_of_[edge.from]];
          if (edge.kind == EdgeKind::stream)
            when = transfer.streams ? Event::released : Event::sent;
          else if (transfer.eager && !transfer.streams)
            when = Event::ready;  // it was copied
          else
            when = transfer.queued > 0 ? Event::released : Event::sent;
        } else if (from == Kind::recv && edge.kind == EdgeKind::stream) {
          when = Event::posted;
        }
        raw_.push_back({activity_of_[edge.from], waiter(i), when, what});
      }
    }
  }

  // ---- Online: slots.
  // A block of slot s, the first or the next one.
  void note_block(size_t d, size_t s, uint32_t block) {
    OnlineGraph& online = *graph_.online;
    if (online_slot_.empty()) online_slot_.resize(program_.devices.size());
    std::vector<int>& slots = online_slot_[d];
    slots.resize(program_.devices[d].order.size(), -1);
    if (slots[s] < 0) {
      const FreeSlot& slot = deps_.free_slots[d][s];
      slots[s] = static_cast<int>(online.slots.size());
      online.slots.push_back({static_cast<int>(d), static_cast<int>(s), block, block, slot.chosen, slot.slot, 0});
      for (const int before : slot.after) {
        const OnlineSlot& earlier = online.slots[static_cast<size_t>(slots[static_cast<size_t>(before)])];
        raw_.push_back({earlier.last, block, Event::delivered, Gate::start});
      }
    }
    online.slots[static_cast<size_t>(slots[s])].last = block;
  }

  // Who waits where instance i has to: in an online run the first block of its slot, unless that keeps its place and so
  // may wait in its middle.
  uint32_t waiter(uint32_t i) const {
    if (!free_ || kinds_[i] != Kind::compute) return activity_of_[i];
    const Instance& at = deps_.instances[i];
    const auto d = static_cast<size_t>(at.device), s = static_cast<size_t>(at.slot);
    if (deps_.free_slots[d][s].fixed) return activity_of_[i];
    return graph_.online->slots[static_cast<size_t>(online_slot_[d][s])].first;
  }

  // Which devices may slow each other down.
  void find_machines() {
    std::map<std::string, std::vector<size_t>> sharing;
    for (size_t d = 0; d < device_ids_.size(); ++d) {
      if (!device_ids_[d].valid()) continue;
      const Device& device = cluster_.device(device_ids_[d]);
      // No name has a blank: hosts do not meet machines of the same name.
      sharing[device.machine.empty() ? "host " + program_.devices[d].host : device.machine].push_back(d);
    }
    graph_.machine_of_device.assign(device_ids_.size(), -1);
    int machines = 0;
    for (const auto& machine : sharing) {
      const std::vector<size_t>& devices = machine.second;
      const bool matters = devices.size() > 1 && std::ranges::any_of(activities_, [&](const Activity& activity) {
                             return activity.company > 0 &&
                                    std::ranges::find(devices, static_cast<size_t>(activity.device)) != devices.end();
                           });
      if (!matters) continue;
      for (const size_t d : devices) graph_.machine_of_device[d] = machines;
      ++machines;
    }
  }

  // No answer waits where nothing ever moves the other way.
  void find_two_way_traffic() {
    if (std::ranges::none_of(activities_, [](const Activity& activity) { return activity.clear_to_send_delay > 0; }))
      return;
    std::set<std::pair<int, int>> ways;
    for (const Activity& activity : activities_)
      if (activity.is_transfer && activity.duration > 0) ways.emplace(activity.device, activity.peer);
    for (Activity& activity : activities_) {
      if (!ways.contains({activity.peer, activity.device})) activity.clear_to_send_delay = 0;
      graph_.clear_to_send_waits = graph_.clear_to_send_waits || activity.clear_to_send_delay > 0;
    }
  }

  // Numbers the activities in a topological order (Kahn), and the edges with them.
  Status sort() {
    const size_t count = activities_.size();
    std::vector<uint32_t> out_begin(count + 1, 0), missing(count, 0), out(raw_.size());
    for (const RawEdge& edge : raw_) {
      ++out_begin[edge.from + 1];
      ++missing[edge.to];
    }
    for (size_t i = 0; i < count; ++i) out_begin[i + 1] += out_begin[i];
    std::vector<uint32_t> at(out_begin.begin(), out_begin.end() - 1);
    for (const RawEdge& edge : raw_) out[at[edge.from]++] = edge.to;

    std::vector<uint32_t> order;
    order.reserve(count);
    graph_.edge_begin.assign(count + 1, 0);
    std::vector<uint32_t> indegree = missing;
    for (uint32_t i = 0; i < count; ++i) {
      if (missing[i] == 0) order.push_back(i);
    }
    std::vector<uint32_t> number(count);
    for (size_t next = 0; next < order.size(); ++next) {
      const uint32_t i = order[next];
      number[i] = static_cast<uint32_t>(next);
      graph_.edge_begin[next + 1] = graph_.edge_begin[next] + indegree[i];
      for (uint32_t e = out_begin[i]; e < out_begin[i + 1]; ++e) {
        if (--missing[out[e]] == 0) order.push_back(out[e]);
      }
    }
    if (order.size() != count) {
      return invalid_input(fmt::format("{} of the program's {} activities wait for each other: a deadlock",
                                       count - order.size(), count));
    }
    if (graph_.online) number_slots(number);
    graph_.activities.reserve(count);
    for (const uint32_t i : order) graph_.activities.push_back(activities_[i]);
    graph_.edges.resize(raw_.size());
    at.assign(graph_.edge_begin.begin(), graph_.edge_begin.end() - 1);
    for (const RawEdge& edge : raw_) graph_.edges[at[number[edge.to]]++] = {number[edge.from], edge.when, edge.what};
    return ok_status();
  }

  void number_slots(const std::vector<uint32_t>& number) {
    OnlineGraph& online = *graph_.online;
    for (OnlineSlot& slot : online.slots) {
      slot.first = number[slot.first];
      slot.last = number[slot.last];
    }
    online.slot_of.assign(number.size(), -1);
    for (uint32_t i = 0; i < number.size(); ++i) {
      if (activities_[i].is_transfer) continue;
      const Instance& at = deps_.instances[graph_.members[activities_[i].first_instance]];
      online.slot_of[number[i]] = online_slot_[static_cast<size_t>(at.device)][static_cast<size_t>(at.slot)];
    }
  }

  const Program& program_;
  const Dependencies& deps_;
  const Cluster& cluster_;
  const CostTable& costs_;
  const ScalarTable& scalars_;
  bool free_;  // the order is
  TimedGraph graph_;
  std::vector<HostId> hosts_;                               // by dense number
  std::vector<DeviceId> device_ids_;                        // by device of the Program; none for endpoints
  std::vector<int> route_of_;                               // [from * hosts + to]: index into graph_.routes
  std::vector<Duration> desc_seconds_;                      // of the device at hand; negative: not looked up yet
  std::map<std::pair<int, int>, Duration> scalar_seconds_;  // of the same, by desc and row of the values
  std::vector<Kind> kinds_;                                 // by instance, as the next three
  std::vector<bool> cut_before_, cut_after_;
  std::vector<uint32_t> activity_of_;
  std::vector<Activity> activities_;  // in order of their making
  std::vector<RawEdge> raw_;
  std::vector<std::vector<int>> online_slot_;  // [device][slot]: index into OnlineGraph::slots; -1: it computes nothing
};

}  // namespace

Result<TimedGraph> build_timed_graph(const Program& program, const Dependencies& dependencies, const Cluster& cluster,
                                     const CostTable& costs, const ScalarTable& scalars) {
  return Builder(program, dependencies, cluster, costs, scalars).run();
}

Result<TimedGraph> build_online_graph(const Program& program, const Dependencies& dependencies, const Online& online,
                                      const Cluster& cluster, const CostTable& costs) {
  ASSIGN_OR_RETURN(const OnlinePolicy* policy, find_online_policy(online.policy));
  if (policy == &replay_policy()) RETURN_IF_ERROR(check_table(program, dependencies, online.table));
  const ScalarTable unknown;
  ASSIGN_OR_RETURN(TimedGraph graph, Builder(program, dependencies, cluster, costs, unknown).run());
  CHECK(graph.online.has_value(), "there is nothing to decide in a given order");
  graph.online->policy = policy;
  graph.online->table = online.table;
  graph.online->table.resize(program.devices.size());
  find_remaining(graph);
  return graph;
}

}  // namespace nlsplit::inline sim
