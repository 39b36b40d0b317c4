#include "sim/smpi/rank_actions.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace nlsplit::inline sim {
namespace {

using Kind = RankAction::Kind;

// A block, or one end of a transfer, on its device.
struct Item {
  double time = 0;
  uint32_t activity = 0;
  Kind kind{};  // compute, isend or irecv
};

// Whether the edge is the order of two messages from one device to another, which MPI keeps by itself: there the next
// one need not wait until the one before it has been sent.
bool is_order_of_messages(const TimedGraph& graph, const TimedEdge& edge, const Activity& waiting) {
  const Activity& from = graph.activities[edge.from];
  return edge.what == Gate::start && edge.when == Event::sent && from.is_transfer && waiting.is_transfer &&
         from.device == waiting.device && from.peer == waiting.peer;
}

class RankWriter {
 public:
  explicit RankWriter(const TimedGraph& graph)
      : graph_(graph), done_(graph.activities.size()), waited_(graph.activities.size()) {}

  std::vector<RankAction> run(std::vector<Item> items) {
    std::ranges::sort(items, {}, [](const Item& item) { return std::tuple(item.time, item.activity, item.kind); });
    for (size_t begin = 0; begin < items.size();) {
      size_t end = begin;
      while (end < items.size() && items[end].time == items[begin].time) ++end;
      add_moment(std::vector<Item>(items.begin() + static_cast<std::ptrdiff_t>(begin),
                                   items.begin() + static_cast<std::ptrdiff_t>(end)));
      begin = end;
    }
    for (const Item& item : items) {
      if (item.kind != Kind::compute) wait(item.activity, item.kind);
    }
    return std::move(actions_);
  }

 private:
  struct Ends {
    bool sent = false, received = false;  // a block: both
  };
  bool& of(std::vector<Ends>& ends, uint32_t activity, Kind kind) const {
    return kind == Kind::irecv ? ends[activity].received : ends[activity].sent;
  }

  // All of one moment: messages as soon as they can, computations as late.
  void add_moment(std::vector<Item> items) {
    while (!items.empty()) {
      const size_t before = items.size();
      std::erase_if(items, [this](const Item& item) { return item.kind != Kind::compute && add(item); });
      if (items.size() < before) continue;
      const auto block =
          std::ranges::find_if(items, [this](const Item& item) { return item.kind == Kind::compute && add(item); });
      CHECK(block != items.end(), "activities of one moment wait for each other");
      items.erase(block);
    }
  }

  static Gate gate_of(Kind kind) { return kind == Kind::irecv ? Gate::post : Gate::start; }
  std::span<const TimedEdge> edges_of(uint32_t activity) const {
    return std::span(graph_.edges)
        .subspan(graph_.edge_begin[activity], graph_.edge_begin[activity + 1] - graph_.edge_begin[activity]);
  }
  // Which end of the activity an edge waits for.
  Kind end_of(const TimedEdge& edge) const {
    if (!graph_.activities[edge.from].is_transfer) return Kind::compute;
    return edge.when == Event::posted || edge.when == Event::delivered ? Kind::irecv : Kind::isend;
  }

  // false: something that comes first is not there yet.
  bool add(const Item& item) {
    const std::span<const TimedEdge> edges = edges_of(item.activity);
    const auto comes_first = [&](const TimedEdge& edge) { return edge.what == gate_of(item.kind); };
    for (const TimedEdge& edge : edges)
      if (comes_first(edge) && !of(done_, edge.from, end_of(edge))) return false;
    for (const TimedEdge& edge : edges)
      if (comes_first(edge) && needs_wait(item, edge)) wait(edge.from, end_of(edge));
    of(done_, item.activity, item.kind) = true;
    const Activity& activity = graph_.activities[item.activity];
    if (activity.is_transfer ? activity.route >= 0 : activity.duration > 0)
      actions_.push_back({item.kind, item.activity});
    return true;
  }

  bool needs_wait(const Item& item, const TimedEdge& edge) const {
    if (!graph_.activities[edge.from].is_transfer || edge.when == Event::posted || edge.when == Event::ready)
      return false;
    return item.kind != Kind::isend || !is_order_of_messages(graph_, edge, graph_.activities[item.activity]);
  }

  void wait(uint32_t transfer, Kind end) {
    if (graph_.activities[transfer].route < 0 || of(waited_, transfer, end)) return;
    of(waited_, transfer, end) = true;
    actions_.push_back({end == Kind::irecv ? Kind::wait_recv : Kind::wait_send, transfer});
  }

  const TimedGraph& graph_;
  std::vector<Ends> done_, waited_;  // by activity
  std::vector<RankAction> actions_;
};

// [activity] of a transfer: when all it waits for has happened, whatever messages stand before it in its FIFO.
std::vector<double> send_times(const TimedGraph& graph, const Timing& timing) {
  std::vector<double> times(graph.activities.size(), 0);
  const auto when = [&](const TimedEdge& edge) {
    switch (edge.when) {
      case Event::posted:
        return timing.posted[edge.from];
      case Event::ready:
        return times[edge.from];
      case Event::sent:
        return timing.sent[edge.from];
      case Event::delivered:
        return timing.finish[edge.from];
      case Event::released:
        return time_of(timing, edge.from, edge.when);
    }
    return 0.0;
  };
  for (uint32_t i = 0; i < times.size(); ++i) {
    const Activity& activity = graph.activities[i];
    for (uint32_t e = graph.edge_begin[i]; activity.is_transfer && e < graph.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      if (edge.what == Gate::post) continue;
      times[i] = std::max(times[i], is_order_of_messages(graph, edge, activity) ? times[edge.from] : when(edge));
    }
  }
  return times;
}

}  // namespace

std::vector<std::vector<RankAction>> rank_actions(const TimedGraph& graph, const Timing& timing) {
  const std::vector<double> sends = send_times(graph, timing);
  std::vector<std::vector<Item>> items(graph.host_of_device.size());
  for (uint32_t i = 0; i < graph.activities.size(); ++i) {
    const Activity& activity = graph.activities[i];
    items[static_cast<size_t>(activity.device)].push_back(
        {activity.is_transfer ? sends[i] : timing.start[i], i, activity.is_transfer ? Kind::isend : Kind::compute});
    if (activity.is_transfer) items[static_cast<size_t>(activity.peer)].push_back({timing.posted[i], i, Kind::irecv});
  }
  std::vector<std::vector<RankAction>> ranks;
  for (std::vector<Item>& of_device : items) ranks.push_back(RankWriter(graph).run(std::move(of_device)));
  return ranks;
}

}  // namespace nlsplit::inline sim
