#include "sim/fast.h"

#include <algorithm>
#include <queue>

#include "sim/events.h"

namespace nlsplit {
namespace {

// One sweep in topological order: every activity's events are known once those before it are.
void sweep(const TimedGraph& graph, Timing& timing) {
  const size_t count = graph.activities.size();
  timing.start.resize(count);
  timing.sent.resize(count);
  timing.finish.resize(count);
  double *start = timing.start.data(), *sent = timing.sent.data(), *finish = timing.finish.data();
  double makespan = 0;
  for (size_t a = 0; a < count; ++a) {
    const Activity& activity = graph.activities[a];
    double ready = 0, posted = 0;
    for (uint32_t e = graph.edge_begin[a]; e < graph.edge_begin[a + 1]; ++e) {
      const TimedEdge edge = graph.edges[e];
      const double* times = edge.when == Event::delivered ? finish : edge.when == Event::sent ? sent : start;
      double& gate = edge.what == Gate::start ? ready : posted;
      gate = std::max(gate, times[edge.from]);
    }
    start[a] = ready;
    if (!activity.is_transfer) {
      sent[a] = finish[a] = ready + activity.duration;
    } else {
      const Route& route = graph.routes[static_cast<size_t>(activity.route)];
      const double begin = activity.eager ? ready : std::max(ready, posted) + graph.handshake;
      sent[a] = begin + activity.bytes / route.bandwidth.value();
      finish[a] = std::max(sent[a] + route.latency.value(), posted);
    }
    makespan = std::max(makespan, finish[a]);
  }
  timing.makespan = makespan;
}

// With a window the order in which transfers reach the card matters: events on a heap, ties in the order they were made.
class HeapClock : public Clock {
 public:
  explicit HeapClock(const TimedGraph& graph) : graph_(graph) {}

  double now() const override { return now_; }
  void at(double time, Occurrence what, uint32_t activity) override { heap_.push({time, made_++, what, activity}); }
  void send(uint32_t activity) override {
    const Activity& transfer = graph_.activities[activity];
    at(now_ + transfer.bytes / graph_.routes[static_cast<size_t>(transfer.route)].bandwidth.value(), Occurrence::message_sent, activity);
  }
  void run(Events& events) {
    events.begin();
    while (!heap_.empty()) {
      const Entry next = heap_.top();
      heap_.pop();
      now_ = next.time;
      events.happens(next.what, next.activity);
    }
  }

 private:
  struct Entry {
    double time;
    uint64_t number;
    Occurrence what;
    uint32_t activity;
    bool operator<(const Entry& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  const TimedGraph& graph_;
  std::priority_queue<Entry> heap_;
  double now_ = 0;
  uint64_t made_ = 0;
};

}  // namespace

void simulate_fast(const TimedGraph& graph, Timing& timing) {
  if (graph.nic_window == 0) return sweep(graph, timing);
  HeapClock clock(graph);
  Events events(graph, clock, timing);
  clock.run(events);
  CHECK(events.finished() == graph.activities.size(), "activities left over in a graph without circles");
}

double Load::busiest() const {
  double most = 0;
  for (const double seconds : device_seconds) most = std::max(most, seconds);
  for (const auto& [hop, seconds] : link_seconds) most = std::max(most, seconds);
  return most;
}

Load load_of(const TimedGraph& graph, const Cluster& cluster, size_t devices) {
  Load load;
  load.device_seconds.assign(devices, 0);
  std::vector<double> bytes_of_route(graph.routes.size(), 0);
  for (const Activity& activity : graph.activities) {
    if (activity.is_transfer) bytes_of_route[static_cast<size_t>(activity.route)] += activity.bytes;
    else load.device_seconds[static_cast<size_t>(activity.device)] += activity.duration;
  }
  for (size_t r = 0; r < graph.routes.size(); ++r) {
    for (Hop hop : graph.routes[r].hops) {
      const Link& link = cluster.links[hop.link.index()];
      if (!link.full_duplex) hop.forward = true;
      const double seconds = bytes_of_route[r] / link.bandwidth.value();
      const auto known = std::find_if(load.link_seconds.begin(), load.link_seconds.end(), [&](const auto& l) { return l.first == hop; });
      if (known == load.link_seconds.end()) load.link_seconds.emplace_back(hop, seconds);
      else known->second += seconds;
    }
  }
  return load;
}

}  // namespace nlsplit
