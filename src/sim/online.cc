#include "sim/online.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace nlsplit::inline sim {
namespace {

// Seconds from each event of an activity to the end.
using AfterEvents = std::array<double, event_count>;

double& after(AfterEvents& events, Event event) { return events[static_cast<size_t>(event)]; }

// From when a gate of the activity opens, if the other one is open.
double from_gate(const Activity& activity, Gate gate, AfterEvents events) {
  if (!activity.is_transfer) return activity.duration + after(events, Event::delivered);
  const double handshake = activity.eager ? 0 : activity.handshake;
  const double moved = handshake + activity.duration;
  const double way =
      std::max({handshake + activity.until_released() + after(events, Event::released),
                moved + after(events, Event::sent), moved + activity.latency + after(events, Event::delivered)});
  if (gate == Gate::start) return std::max(after(events, Event::ready), way);
  // A message that does not wait for it may be there already when its recv is posted.
  return std::max(after(events, Event::posted), activity.waits ? way : after(events, Event::delivered));
}

}  // namespace

void find_remaining(TimedGraph& graph) {
  const size_t count = graph.activities.size();
  std::vector<AfterEvents> events(count, AfterEvents{});
  for (size_t i = count; i-- > 0;) {  // all that wait for it come behind it
    for (uint32_t e = graph.edge_begin[i]; e < graph.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph.edges[e];
      double& then = after(events[edge.from], edge.when);
      then = std::max(then, from_gate(graph.activities[i], edge.what, events[i]));
    }
  }
  for (OnlineSlot& slot : graph.online->slots)
    slot.remaining = from_gate(graph.activities[slot.first], Gate::start, events[slot.first]);
}

Online online_of(const TimedGraph& graph, const Program& program) {
  Online online{std::string(graph.online->policy->name), {}, {}};
  if (graph.online->policy == &replay_policy()) online.table = graph.online->table;
  for (const DeviceProgram& device : program.devices) online.remaining_s.emplace_back(device.order.size(), 0.0);
  for (const OnlineSlot& slot : graph.online->slots)
    online.remaining_s[static_cast<size_t>(slot.device)][static_cast<size_t>(slot.index)] = slot.remaining;
  return online;
}

std::vector<std::vector<int>> decisions_of(const TimedGraph& graph, const Timing& timing, size_t devices) {
  std::vector<std::vector<int>> order(devices);
  for (const OnlineSlot& slot : graph.online->slots) {
    std::vector<int>& of_device = order[static_cast<size_t>(slot.device)];
    const auto turn = static_cast<size_t>(timing.turn[slot.first]);
    if (of_device.size() <= turn) of_device.resize(turn + 1);
    of_device[turn] = slot.index;
  }
  return order;
}

Turns::Turns(const TimedGraph& graph)
    : online_(*graph.online), busy_(graph.host_of_device.size(), false), count_(graph.host_of_device.size(), 0) {
  for (size_t d = 0; d < busy_.size(); ++d)
    devices_.emplace_back(static_cast<int>(d), *online_.policy, online_.table[d]);
}

void Turns::ready(uint32_t block, double now) {
  const OnlineSlot& slot = slot_of(block);
  const auto d = static_cast<size_t>(slot.device);
  devices_[d].ready(online_.slot_of[block], slot.chosen, {slot.slot, now, slot.remaining});
  ask_.insert(d);
}

void Turns::block_ended(uint32_t block) {
  const OnlineSlot& slot = slot_of(block);
  if (slot.last != block) return;
  busy_[static_cast<size_t>(slot.device)] = false;
  ask_.insert(static_cast<size_t>(slot.device));
}

std::optional<uint32_t> Turns::next(double now, double& turn) {
  while (!ask_.empty()) {
    const size_t d = *ask_.begin();
    ask_.erase(ask_.begin());
    if (busy_[d]) continue;
    const std::optional<int> chosen = devices_[d].next(now);
    if (!chosen) continue;
    busy_[d] = true;
    turn = count_[d]++;
    return online_.slots[static_cast<size_t>(*chosen)].first;
  }
  return std::nullopt;
}

Error Turns::stuck() const {
  std::string text = fmt::format("online policy {} left every device waiting", online_.policy->name);
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (const std::string what = devices_[d].waiting(); !what.empty()) text += fmt::format("; device {} {}", d, what);
  }
  return invalid_input(text);
}

}  // namespace nlsplit::inline sim
