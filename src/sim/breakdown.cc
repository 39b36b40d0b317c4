#include "sim/breakdown.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

namespace nlsplit::inline sim {
namespace {

constexpr uint32_t nothing = std::numeric_limits<uint32_t>::max();

// What opened a gate: the last of all that it waited for.
struct Cause {
  uint32_t activity = nothing;
  Event event = Event::delivered;
  double time = 0;
};

class Idleness {
 public:
  Idleness(const TimedGraph& graph, const Timing& timing) : graph_(graph), timing_(timing) {}

  // How much of [from, to], the time before `cause` was met at `to`, a message was under way.
  double exposed(Cause cause, double from, double to) const {
    double sum = 0;
    while (cause.activity != nothing && to > from) {
      const uint32_t i = cause.activity;
      const Activity& activity = graph_.activities[i];
      if (!activity.is_transfer) break;
      const Cause ready = cause_of(i, Gate::start), posted = cause_of(i, Gate::post);
      // Nothing moves for a recv to be posted; and a message that does not wait for it may be there before.
      const bool there_before =
          !activity.waits && cause.event == Event::delivered && timing_.posted[i] >= timing_.finish[i];
      if (cause.event == Event::posted || there_before) {
        cause = posted;
        continue;
      }
      // The handshake, a card's turn and the way are all the network's time.
      const bool on_receiver = activity.waits && timing_.posted[i] > timing_.start[i];
      const double could_move = on_receiver ? timing_.posted[i] : timing_.start[i];
      if (cause.event != Event::ready) {
        const double begin = std::clamp(could_move, from, to);
        sum += to - begin;
        to = begin;
      }
      cause = on_receiver ? posted : ready;
    }
    return sum;
  }

  // Of several at the same time the first.
  Cause cause_of(uint32_t i, Gate gate) const {
    Cause last;
    for (uint32_t e = graph_.edge_begin[i]; e < graph_.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph_.edges[e];
      if (edge.what != gate) continue;
      const double time = time_of(timing_, edge.from, edge.when);
      if (last.activity == nothing || time > last.time) last = {edge.from, edge.when, time};
    }
    return last;
  }

 private:
  const TimedGraph& graph_;
  const Timing& timing_;
};

std::vector<DeviceBreakdown> devices_of(const TimedGraph& graph, const Timing& timing) {
  struct Device {
    double idle_since = 0;
    Cause last_message;
  };
  const Idleness idleness(graph, timing);
  std::vector<DeviceBreakdown> parts(graph.host_of_device.size());
  std::vector<Device> devices(parts.size());
  const auto idle = [&](size_t d, const Cause& cause, double until) {
    const double gap = std::max(0.0, until - devices[d].idle_since);
    const double exposed =
        std::clamp(idleness.exposed(cause, devices[d].idle_since, std::min(until, cause.time)), 0.0, gap);
    parts[d].exposed_communication += exposed;
    parts[d].waiting += gap - exposed;
  };
  // A device's blocks stand in their order, each waiting for the one before it, unless their slots have come in turns.
  std::vector<uint32_t> order(graph.activities.size());
  std::iota(order.begin(), order.end(), 0u);
  if (graph.online) std::ranges::stable_sort(order, {}, [&](uint32_t i) { return timing.start[i]; });
  for (const uint32_t i : order) {
    const Activity& activity = graph.activities[i];
    if (activity.is_transfer) {
      for (const int end : {activity.device, activity.peer}) {
        Cause& last = devices[static_cast<size_t>(end)].last_message;
        if (last.activity == nothing || timing.finish[i] > last.time) last = {i, Event::delivered, timing.finish[i]};
      }
      continue;
    }
    const auto d = static_cast<size_t>(activity.device);
    idle(d, idleness.cause_of(i, Gate::start), timing.start[i]);
    parts[d].computing += timing.finish[i] - timing.start[i];
    devices[d].idle_since = std::max(devices[d].idle_since, timing.finish[i]);
  }
  for (size_t d = 0; d < parts.size(); ++d) idle(d, devices[d].last_message, timing.makespan);
  return parts;
}

// Length of the union of intervals.
double covered(std::vector<std::pair<double, double>>& intervals) {
  std::ranges::sort(intervals);
  double total = 0, end = 0;
  for (const auto& [from, to] : intervals) {
    total += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return total;
}

std::vector<LinkUse> links_of(const TimedGraph& graph, const Timing& timing, const Cluster& cluster) {
  struct Carried {
    bool used = false;
    double bytes = 0;
    std::vector<std::pair<double, double>> moves;
  };
  std::vector<Carried> carried(cluster.links.size() * 2);
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const Activity& activity = graph.activities[i];
    if (!activity.is_transfer || activity.route < 0) continue;
    for (const Hop& hop : graph.routes[static_cast<size_t>(activity.route)].hops) {
      if (!cluster.links[hop.link.index()].shared) continue;
      Carried& link = carried[lane_of(cluster, hop)];
      link.used = true;
      link.bytes += activity.bytes;
      link.moves.emplace_back(timing.moves[i], timing.sent[i]);
    }
  }
  std::vector<LinkUse> links;
  for (size_t at = 0; at < carried.size(); ++at) {
    if (!carried[at].used) continue;
    LinkUse use{Hop{LinkId(at / 2), at % 2 == 0}, carried[at].bytes, 0, 0};
    if (timing.makespan > 0) {
      use.utilisation = use.bytes / cluster.links[at / 2].bandwidth.value() / timing.makespan;
      use.busy = covered(carried[at].moves) / timing.makespan;
    }
    links.push_back(use);
  }
  return links;
}

}  // namespace

Breakdown break_down(const TimedGraph& graph, const Timing& timing, const Cluster& cluster) {
  return {devices_of(graph, timing), links_of(graph, timing, cluster)};
}

}  // namespace nlsplit::inline sim
