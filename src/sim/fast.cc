#include "sim/fast.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "sim/runner.h"
#include "sim/scale_transfer.h"

namespace nlsplit::inline sim {
namespace {

// Every activity after all it waits for: one pass in the graph's order.
void sweep(const TimedGraph& graph, const ScaledLinks& links, Timing& timing) {
  const size_t count = graph.activities.size();
  const double way = 1 / links.bandwidth;
  for (auto* times : {&timing.posted, &timing.start, &timing.moves, &timing.sent, &timing.finish}) times->resize(count);
  // Nothing is queued here, so nothing is released before it is sent.
  const std::array<const double*, 4> time_of = {timing.posted.data(), timing.start.data(), timing.sent.data(),
                                                timing.finish.data()};
  static_assert(static_cast<int>(Event::posted) == 0 && static_cast<int>(Event::ready) == 1 &&
                static_cast<int>(Event::sent) == 2 && static_cast<int>(Event::delivered) == 3);
  double makespan = 0;
  for (size_t i = 0; i < count; ++i) {
    std::array<double, 2> gate = {0, 0};
    for (uint32_t e = graph.edge_begin[i]; e < graph.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      double& time = gate[static_cast<size_t>(edge.what)];
      time = std::max(time, time_of[static_cast<size_t>(edge.when)][edge.from]);
    }
    const auto [start, post] = gate;
    const Activity& activity = graph.activities[i];
    double moves = start;
    if (activity.is_transfer && !activity.eager)
      moves = (activity.waits ? std::max(start, post) : start) + activity.handshake * links.latency;
    const double sent = moves + (activity.is_transfer ? activity.duration * way : activity.duration);
    double finish = sent, posted = sent;
    if (activity.is_transfer) {
      finish = std::max(sent + activity.latency * links.latency, post);
      posted = post;
    }
    timing.posted[i] = posted;
    timing.start[i] = start;
    timing.moves[i] = moves;
    timing.sent[i] = sent;
    timing.finish[i] = finish;
    makespan = std::max(makespan, finish);
  }
  timing.makespan = makespan;
}

struct QueueClock {
  const TimedGraph& graph;
  EventQueue queue;
  void at(double time, uint32_t activity, Step step) { queue.push({time, activity, step}); }
  void flow(uint32_t activity, double now) { at(now + graph.activities[activity].duration, activity, Step::flow_done); }
};

TimedGraph over(TimedGraph graph, const ScaledLinks& links) {
  for (Activity& activity : graph.activities) {
    if (!activity.is_transfer) continue;
    scale_transfer(activity, 1 / links.bandwidth, links.latency);
    if (!links.overheads) leave_out_overheads(activity);
  }
  graph.has_overheads = graph.has_overheads && links.overheads;
  return graph;
}

// Who goes first at a card, or on a device that chooses, depends on time, so activities are taken in its order. Error:
// an online policy left every device waiting.
Status event_loop(const TimedGraph& graph, Timing& timing) {
  QueueClock clock{graph, {}};
  Runner runner(graph, timing, clock);
  runner.begin();
  while (!clock.queue.empty()) {
    const double now = clock.queue.top().time;
    while (!clock.queue.empty() && clock.queue.top().time <= now) {
      const TimedStep next = clock.queue.top();
      clock.queue.pop();
      runner.step(next.activity, next.step, now);
    }
    runner.admit(now);
  }
  if (std::optional<Error> why = runner.why()) return *std::move(why);
  CHECK(runner.unfinished() == 0, "a timed graph is acyclic, so all its activities end");
  return ok_status();
}

}  // namespace

bool is_closed(const TimedGraph& graph) {
  if (graph.nic_window > 0 || !graph.slowness.empty() || graph.online || graph.clear_to_send_waits ||
      graph.has_queues || graph.has_overheads)
    return false;
  return std::ranges::none_of(graph.machine_of_device, [](int machine) { return machine >= 0; });
}

void simulate_by_events(const TimedGraph& graph, Timing& timing) {
  if (!event_loop(graph, timing).ok()) timing.makespan = std::numeric_limits<double>::infinity();
}

void simulate_fast(const TimedGraph& graph, Timing& timing, const ScaledLinks& links) {
  if (is_closed(graph)) {
    timing.turn.clear();
    return sweep(graph, links, timing);
  }
  if (links.bandwidth == 1 && links.latency == 1 && links.overheads) return simulate_by_events(graph, timing);
  simulate_by_events(over(graph, links), timing);
}

namespace {

class FastTier final : public Tier {
 public:
  std::string_view name() const override { return "fast"; }
  std::string_view title() const override { return "fast tier"; }
  bool shares_links() const override { return false; }

  Status simulate(const Simulation& simulation, Timing& timing) const override {
    const TimedGraph* graph = simulation.graph;
    TimedGraph disturbed;
    if (simulation.disturb) {
      disturbed = *graph;
      simulation.disturb(disturbed);
      graph = &disturbed;
    }
    if (graph->online) {
      RETURN_IF_ERROR(simulate_online(*graph, timing));
    } else {
      simulate_fast(*graph, timing);
    }
    const Load load = load_of(*graph, *simulation.cluster, graph->host_of_device.size());
    timing.makespan = std::max(timing.makespan, load.busiest());
    return ok_status();
  }
};

}  // namespace

const Tier& fast_tier() {
  static const FastTier tier;
  return tier;
}

Status simulate_online(const TimedGraph& graph, Timing& timing) {
  CHECK(graph.online.has_value(), "this graph has no online policy");
  return event_loop(graph, timing);
}

}  // namespace nlsplit::inline sim
