#include "sim/timed_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "program/text.h"

namespace nlsplit {
namespace {

constexpr uint32_t none = ~0u;

// The cluster's device a Program's device stands for; endpoints have none.
Result<std::vector<DeviceId>> match_devices(const Program& program, const Cluster& cluster) {
  std::vector<DeviceId> ids;
  for (const DeviceProgram& device : program.devices) {
    DeviceId id;
    if (device.kind != DeviceKind::host) {
      id = cluster.find_device(device.name);
      if (!id.valid()) return invalid_input(fmt::format("the cluster has no device called {}", device.name));
    }
    if (!cluster.find_host(device.host).valid()) return invalid_input(fmt::format("the cluster has no host called {}", device.host));
    ids.push_back(id);
  }
  return ids;
}

// Seconds of each instruction, by device, segment and instruction: a slot only adds them up.
class InstructionCosts {
 public:
  InstructionCosts(const Program& program, const CostTable& costs, std::vector<DeviceId> ids)
      : program_(program), costs_(costs), ids_(std::move(ids)), seconds_(program.devices.size()) {}

  Status look_up() {
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      const DeviceProgram& device = program_.devices[d];
      std::vector<double> of_desc(program_.descs.size(), -1);
      for (const Segment& segment : device.segments) {
        std::vector<double>& list = seconds_[d].emplace_back();
        for (const Instr& instr : segment.instrs) {
          double& seconds = list.emplace_back(0);
          if (instr.opcode == Opcode::compute) {
            double& known = of_desc[static_cast<size_t>(instr.desc)];
            if (known < 0) {
              auto cost = costs_.cost(ids_[d], program_.descs[static_cast<size_t>(instr.desc)]);
              if (!cost) return named(cost.error(), instr);
              known = cost->time.value();
            }
            seconds = known;
          } else if (!is_transfer(instr.opcode)) {
            ASSIGN_OR_RETURN(seconds, movement(d, instr));
          }
        }
      }
    }
    return ok_status();
  }

  const std::vector<double>& of_segment(size_t device, int segment) const { return seconds_[device][static_cast<size_t>(segment)]; }

 private:
  static Error named(Error error, const Instr& instr) {
    if (!instr.label.empty()) error.message = fmt::format("layer {}: {}", instr.label, error.message);
    return error;
  }

  // reduce, copy, pack, unpack are memory traffic; a roofline knows what that costs.
  Result<double> movement(size_t d, const Instr& instr) const {
    const DeviceProgram& device = program_.devices[d];
    if (device.kind == DeviceKind::host) return 0.0;   // the user's own data, where it lies
    const auto* roofline = std::get_if<Roofline>(&costs_.source(ids_[d]));
    if (roofline == nullptr) {
      return unsupported(fmt::format("device {}: `{}` moves data inside the device, which profiles do not measure yet; give the device "
                                     "a roofline", device.name, to_string(program_, device, instr)));
    }
    double moved = 0;
    for (const Operand& operand : instr.reads) moved += static_cast<double>(bytes_of(device, operand).value());
    for (const Operand& operand : instr.writes) moved += static_cast<double>(bytes_of(device, operand).value());
    return moved / roofline->memory.value();
  }

  const Program& program_;
  const CostTable& costs_;
  std::vector<DeviceId> ids_;
  std::vector<std::vector<std::vector<double>>> seconds_;
};

class Builder {
 public:
  Builder(const Program& program, const Dependencies& deps, const Cluster& cluster)
      : program_(program), deps_(deps), cluster_(cluster), activity_of_(deps.instances.size(), none) {}

  Status build(const InstructionCosts& costs) {
    out_.handshake = cluster_.handshake.value();
    out_.nic_window = program_.nic_window;
    std::map<std::string_view, int> hosts;
    for (const DeviceProgram& device : program_.devices) {
      out_.host_of_device.push_back(hosts.try_emplace(device.host, static_cast<int>(hosts.size())).first->second);
    }
    mark_cuts();
    RETURN_IF_ERROR(make_activities(costs));
    connect();
    return sort();
  }

  TimedGraph take() && { return std::move(out_); }

 private:
  bool transfers(uint32_t i) const { return deps_.match[i] != no_instance; }

  // A block ends where an edge to another stream leaves, and begins where one enters.
  void mark_cuts() {
    cut_before_.assign(deps_.instances.size(), false);
    for (uint32_t i = 0; i < deps_.instances.size(); ++i) {
      const bool here = transfers(i);
      for (const Edge& edge : deps_.into(i)) {
        if (transfers(edge.from) == here) continue;
        if (here) cut_after(edge.from);
        else cut_before_[i] = true;
      }
    }
  }
  void cut_after(uint32_t i) {
    if (after_.empty()) after_.assign(deps_.instances.size(), false);
    after_[i] = true;
  }
  bool ends_block(uint32_t i) const { return !after_.empty() && after_[i]; }

  Status make_activities(const InstructionCosts& costs) {
    const size_t devices = program_.devices.size();
    std::vector<int> route_of(devices * devices, -2);
    out_.members.reserve(deps_.instances.size());
    out_.member_offset.reserve(deps_.instances.size());
    for (size_t d = 0; d < devices; ++d) {
      uint32_t open = none;   // the block that may still grow
      int open_slot = -1;
      for (uint32_t i = deps_.device_begin[d]; i < deps_.device_begin[d + 1]; ++i) {
        const Instance& at = deps_.instances[i];
        const DeviceProgram& device = program_.devices[d];
        const int segment = device.order[static_cast<size_t>(at.slot)].segment;
        const Instr& instr = device.segments[static_cast<size_t>(segment)].instrs[static_cast<size_t>(at.instr)];
        if (transfers(i)) {
          if (instr.opcode == Opcode::send) RETURN_IF_ERROR(add_transfer(i, d, instr, route_of));
          continue;
        }
        if (open == none || at.slot != open_slot || cut_before_[i]) {
          open = static_cast<uint32_t>(out_.activities.size());
          open_slot = at.slot;
          Activity& block = out_.activities.emplace_back();
          block.device = static_cast<int>(d);
          block.first_instance = static_cast<uint32_t>(out_.members.size());
        }
        Activity& block = out_.activities[open];
        activity_of_[i] = open;
        out_.members.push_back(i);
        out_.member_offset.push_back(block.duration);
        block.duration += costs.of_segment(d, segment)[static_cast<size_t>(at.instr)];
        ++block.count;
        if (ends_block(i)) open = none;
      }
    }
    return ok_status();
  }

  Status add_transfer(uint32_t i, size_t d, const Instr& instr, std::vector<int>& route_of) {
    const auto peer = static_cast<size_t>(instr.peer);
    int& route = route_of[d * program_.devices.size() + peer];
    if (route == -2) {
      ASSIGN_OR_RETURN(Route found, find_route(cluster_, cluster_.find_host(program_.devices[d].host),
                                               cluster_.find_host(program_.devices[peer].host)));
      route = static_cast<int>(out_.routes.size());
      out_.routes.push_back(std::move(found));
    }
    const Bytes size = bytes_of(program_.devices[d], instr.reads[0]);
    activity_of_[i] = activity_of_[deps_.match[i]] = static_cast<uint32_t>(out_.activities.size());
    Activity& transfer = out_.activities.emplace_back();
    transfer.is_transfer = true;
    transfer.eager = size <= program_.eager_limit;
    transfer.device = static_cast<int>(d);
    transfer.peer = instr.peer;
    transfer.first_instance = i;
    transfer.count = 1;
    transfer.bytes = static_cast<double>(size.value());
    transfer.route = route;
    return ok_status();
  }

  // Edges between instances as edges between activities; those inside a block vanish.
  void connect() {
    std::vector<uint32_t>& begin = out_.edge_begin;
    begin.reserve(out_.activities.size() + 1);
    for (uint32_t a = 0; a < out_.activities.size(); ++a) {
      begin.push_back(static_cast<uint32_t>(out_.edges.size()));
      const Activity& activity = out_.activities[a];
      if (activity.is_transfer) {
        add_edges(activity.first_instance, Gate::start);
        add_edges(deps_.match[activity.first_instance], Gate::post);
      } else {
        add_edges(out_.members[activity.first_instance], Gate::start);   // edges from elsewhere enter at a block's first member only
      }
    }
    begin.push_back(static_cast<uint32_t>(out_.edges.size()));
  }

  void add_edges(uint32_t instance, Gate gate) {
    for (const Edge& edge : deps_.into(instance)) {
      // The order of a FIFO is kept by its sends; a recv is posted as soon as its bank is free.
      if (gate == Gate::post && edge.kind == EdgeKind::stream) continue;
      const uint32_t from = activity_of_[edge.from];
      const Activity& earlier = out_.activities[from];
      Event when = Event::delivered;
      if (earlier.is_transfer && edge.from == earlier.first_instance) {   // behind a send
        const bool same_fifo = edge.kind == EdgeKind::stream;
        when = same_fifo || !earlier.eager ? Event::sent : Event::ready;
      }
      out_.edges.push_back({from, when, gate});
    }
  }

  // Puts activities into a topological order (Kahn).
  Status sort() {
    const auto count = static_cast<uint32_t>(out_.activities.size());
    std::vector<uint32_t> missing(count), out_begin(count + 1, 0), readers(out_.edges.size()), order;
    for (const TimedEdge& edge : out_.edges) ++out_begin[edge.from + 1];
    for (uint32_t a = 0; a < count; ++a) out_begin[a + 1] += out_begin[a];
    std::vector<uint32_t> fill(out_begin.begin(), out_begin.end() - 1);
    order.reserve(count);
    for (uint32_t a = 0; a < count; ++a) {
      missing[a] = out_.edge_begin[a + 1] - out_.edge_begin[a];
      for (uint32_t e = out_.edge_begin[a]; e < out_.edge_begin[a + 1]; ++e) readers[fill[out_.edges[e].from]++] = a;
      if (missing[a] == 0) order.push_back(a);
    }
    for (size_t next = 0; next < order.size(); ++next) {
      for (uint32_t e = out_begin[order[next]]; e < out_begin[order[next] + 1]; ++e) {
        if (--missing[readers[e]] == 0) order.push_back(readers[e]);
      }
    }
    if (order.size() != count) return invalid_input("the program's dependencies form a circle; `verify` says which");
    std::vector<uint32_t> place(count);
    for (uint32_t p = 0; p < count; ++p) place[order[p]] = p;
    TimedGraph sorted;
    sorted.activities.reserve(count);
    sorted.edge_begin.reserve(count + 1);
    sorted.edges.reserve(out_.edges.size());
    for (const uint32_t a : order) {
      sorted.activities.push_back(out_.activities[a]);
      sorted.edge_begin.push_back(static_cast<uint32_t>(sorted.edges.size()));
      for (uint32_t e = out_.edge_begin[a]; e < out_.edge_begin[a + 1]; ++e) {
        TimedEdge edge = out_.edges[e];
        edge.from = place[edge.from];
        sorted.edges.push_back(edge);
      }
    }
    sorted.edge_begin.push_back(static_cast<uint32_t>(sorted.edges.size()));
    out_.activities = std::move(sorted.activities);
    out_.edge_begin = std::move(sorted.edge_begin);
    out_.edges = std::move(sorted.edges);
    return ok_status();
  }

  const Program& program_;
  const Dependencies& deps_;
  const Cluster& cluster_;
  std::vector<uint32_t> activity_of_;
  std::vector<bool> cut_before_, after_;
  TimedGraph out_;
};

}  // namespace

Result<TimedGraph> build_timed_graph(const Program& program, const Dependencies& dependencies, const Cluster& cluster,
                                     const CostTable& costs) {
  ASSIGN_OR_RETURN(std::vector<DeviceId> ids, match_devices(program, cluster));
  InstructionCosts instruction_costs(program, costs, std::move(ids));
  RETURN_IF_ERROR(instruction_costs.look_up());
  Builder builder(program, dependencies, cluster);
  RETURN_IF_ERROR(builder.build(instruction_costs));
  return std::move(builder).take();
}

Trace to_trace(const Program& program, const Dependencies& dependencies, const TimedGraph& graph, const Timing& timing) {
  Trace trace;
  trace.fingerprint = fingerprint(program);
  trace.makespan = timing.makespan;
  for (const DeviceProgram& device : program.devices) trace.peak_bytes.push_back(device.arena);
  trace.spans.resize(dependencies.instances.size());
  const auto set = [&](uint32_t instance, double start, double finish) {
    const Instance& at = dependencies.instances[instance];
    trace.spans[instance] = {at.device, at.slot, at.instr, start, finish};
  };
  for (size_t a = 0; a < graph.activities.size(); ++a) {
    const Activity& activity = graph.activities[a];
    if (activity.is_transfer) {
      set(activity.first_instance, timing.start[a], timing.sent[a]);
      // Shown from when its first byte can have left, not from when somebody began to wait for it.
      set(dependencies.match[activity.first_instance], timing.start[a], timing.finish[a]);
      continue;
    }
    for (uint32_t m = activity.first_instance; m < activity.first_instance + activity.count; ++m) {
      const double start = timing.start[a] + graph.member_offset[m];
      const bool last = m + 1 == activity.first_instance + activity.count;
      set(graph.members[m], start, last ? timing.finish[a] : timing.start[a] + graph.member_offset[m + 1]);
    }
  }
  return trace;
}

}  // namespace nlsplit
