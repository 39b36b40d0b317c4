// The order of every device: the table's slots, what source and sink do between them, and the messages of each slot, in
// an order that both ends of every FIFO agree on.
//
// First the table is played through in time, conservatively: a slot starts only when whoever receives from it has a
// bank free. The result is a possible execution in which every message passes at once, so orders taken from it cannot
// deadlock.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "program/lower_flows.h"

namespace nlsplit {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

class Timeline {
 public:
  Timeline(const std::vector<Flow>& flows, const Placement& placement, const SlotTable& table,
           const std::vector<std::vector<double>>& seconds)
      : placement_(placement),
        table_(table),
        seconds_(seconds),
        consumers_(at(placement.stages)),
        freed_by_(at(placement.stages), std::vector<int>(at(placement.micro_batches), -1)) {
    const auto no_times = std::vector<double>(at(placement.micro_batches), unknown);
    start.assign(at(placement.stages), no_times);
    finish = start;
    source.assign(at(placement.micro_batches), unknown);
    for (const Flow& flow : flows) {
      std::vector<int>& known = flow.producer == source_stage ? input_consumers_ : consumers_[at(flow.producer)];
      for (const int c : flow.consumers) {
        if (c < placement.stages && std::find(known.begin(), known.end(), c) == known.end()) known.push_back(c);
      }
      const bool to_sink = flow.consumers.back() == placement.stages && placement.source != placement.sink;
      if (flow.producer == source_stage && to_sink) passes_through_ = true;
    }
    // freed_by_[stage][m]: the micro-batch whose end frees the bank that m needs at this stage on its device.
    std::vector<std::vector<int>> done(at(placement.stages));
    for (const std::vector<ScheduledSlot>& order : table.devices) {
      for (auto& list : done) list.clear();
      for (const ScheduledSlot& slot : order) {
        std::vector<int>& list = done[at(slot.stage)];
        if (list.size() >= at(table.banks))
          freed_by_[at(slot.stage)][at(slot.micro_batch)] = list[list.size() - at(table.banks)];
        list.push_back(slot.micro_batch);
      }
    }
  }

  Status run() {
    std::vector<size_t> next(table_.devices.size(), 0);
    std::vector<double> free(table_.devices.size(), 0);
    size_t left = 0;
    for (const auto& order : table_.devices) left += order.size();
    while (left > 0) {
      const size_t before = left;
      for (size_t d = 0; d < table_.devices.size(); ++d) {
        while (next[d] < table_.devices[d].size() && play(table_.devices[d][next[d]], free[d])) {
          ++next[d];
          --left;
        }
      }
      if (left == before) return failed("the schedule's orders wait for each other");
    }
    if (!passes_through_) return ok_status();
    for (size_t m = 0; m < source.size(); ++m) {
      if (!(source[m] == source[m])) source[m] = start[0][m];
    }
    return ok_status();
  }

  std::vector<std::vector<double>> start, finish;  // [stage][micro-batch]
  std::vector<double> source;  // [micro-batch]: when its inputs are sent; unknown: nobody needs them sent

 private:
  // When all who receive micro-batch m from `from` have a bank for it; false: not known yet.
  bool banks_free(const std::vector<int>& consumers, int from, int m, double& when) const {
    for (const int c : consumers) {
      if (placement_.device_of(c, m) == from) continue;
      const int frees = freed_by_[at(c)][at(m)];
      if (frees < 0) continue;
      const double then = finish[at(c)][at(frees)];
      if (!(then >= 0)) return false;
      when = std::max(when, then);
    }
    return true;
  }

  bool needs_input(int stage) const {
    return std::find(input_consumers_.begin(), input_consumers_.end(), stage) != input_consumers_.end();
  }

  bool play(const ScheduledSlot& slot, double& device_free) {
    const size_t s = at(slot.stage), m = at(slot.micro_batch);
    double begin = device_free;
    if (slot.stage == 0 && placement_.in_flight > 0 && slot.micro_batch >= placement_.in_flight) {
      const double left = finish.back()[at(slot.micro_batch - placement_.in_flight)];
      if (!(left >= 0)) return false;
      begin = std::max(begin, left);
    }
    for (const int before : placement_.needs[s]) {
      if (!(finish[at(before)][m] >= 0)) return false;
      begin = std::max(begin, finish[at(before)][m]);
    }
    if (needs_input(slot.stage) && placement_.device_of(slot.stage, slot.micro_batch) != placement_.source) {
      double sent = -1;  // before everything else
      if (!banks_free(input_consumers_, placement_.source, slot.micro_batch, sent)) return false;
      source[m] = sent;
      begin = std::max(begin, sent);
    }
    if (!banks_free(consumers_[s], placement_.device_of(slot.stage, slot.micro_batch), slot.micro_batch, begin))
      return false;
    start[s][m] = begin;
    finish[s][m] = device_free = begin + seconds_[s][m];
    return true;
  }

  const Placement& placement_;
  const SlotTable& table_;
  const std::vector<std::vector<double>>& seconds_;
  std::vector<std::vector<int>> consumers_;  // [stage]: stages that read what it makes
  std::vector<int> input_consumers_;
  bool passes_through_ = false;  // an input is an output too
  std::vector<std::vector<int>> freed_by_;
};

// A slot of the source or sink, to be put before the table's slot number `before` of its device.
struct Between {
  size_t before = 0;
  double when = 0;
  int stage = 0;
  int micro_batch = 0;
};

double sink_time(const std::vector<Flow>& flows, const Placement& placement, const Timeline& time, int m) {
  double when = 0;
  for (const Flow& flow : flows) {
    if (flow.consumers.back() != placement.stages || flow.producer == source_stage) continue;
    when = std::max(when, time.finish[at(flow.producer)][at(m)]);
  }
  return when;
}

bool sink_acts(const std::vector<Flow>& flows, const Placement& placement, int m) {
  if (placement.sink_copies) return true;
  for (const Flow& flow : flows) {
    if (flow.consumers.back() != placement.stages || placement.device_of(flow.producer, m) == placement.sink) continue;
    const bool earlier = std::any_of(flow.consumers.begin(), flow.consumers.end() - 1,
                                     [&](int c) { return placement.device_of(c, m) == placement.sink; });
    if (!earlier) return true;
  }
  return false;
}

Orders order_slots(const std::vector<Flow>& flows, const Placement& placement, const SlotTable& table,
                   const Timeline& time) {
  std::vector<std::vector<Between>> between(at(placement.devices));
  const std::vector<ScheduledSlot> none;  // an endpoint's own work
  const auto of_device = [&](int d) -> const std::vector<ScheduledSlot>& {
    return at(d) < table.devices.size() ? table.devices[at(d)] : none;
  };
  const std::vector<ScheduledSlot>& at_source = of_device(placement.source);
  const std::vector<ScheduledSlot>& at_sink = of_device(placement.sink);
  // When the last message a slot waits for was sent.
  const auto fed = [&](const ScheduledSlot& slot) {
    const std::vector<int>& needs = placement.needs[at(slot.stage)];
    double last = 0;
    for (const int before : needs) last = std::max(last, time.finish[at(before)][at(slot.micro_batch)]);
    if (!needs.empty()) return last;
    const double sent = time.source[at(slot.micro_batch)];
    return sent == sent ? sent : time.start[at(slot.stage)][at(slot.micro_batch)];
  };
  for (int m = 0; m < placement.micro_batches; ++m) {
    if (const double when = time.source[at(m)]; when == when) {
      const auto before = std::find_if(at_source.begin(), at_source.end(), [&](const ScheduledSlot& slot) {
        return time.finish[at(slot.stage)][at(slot.micro_batch)] > when;
      });
      between[at(placement.source)].push_back({static_cast<size_t>(before - at_source.begin()), when, source_stage, m});
    }
    if (sink_acts(flows, placement, m)) {
      const double when = sink_time(flows, placement, time, m);
      // Behind slots that are over by then, or whose last message was sent before; at equal times a source sends after
      // stages did.
      const auto after = std::find_if(at_sink.rbegin(), at_sink.rend(), [&](const ScheduledSlot& slot) {
        return fed(slot) < when || time.finish[at(slot.stage)][at(slot.micro_batch)] <= when;
      });
      between[at(placement.sink)].push_back({static_cast<size_t>(at_sink.rend() - after), when, placement.stages, m});
    }
  }
  Orders orders(at(placement.devices));
  for (int d = 0; d < placement.devices; ++d) {
    std::vector<Between>& extra = between[at(d)];
    std::stable_sort(extra.begin(), extra.end(), [](const Between& a, const Between& b) {
      return a.before != b.before ? a.before < b.before : a.when < b.when;
    });
    const std::vector<ScheduledSlot>& own = of_device(d);
    orders[at(d)].reserve(own.size() + extra.size());
    size_t e = 0;
    for (size_t i = 0; i <= own.size(); ++i) {
      for (; e < extra.size() && extra[e].before == i; ++e)
        orders[at(d)].push_back({extra[e].stage, extra[e].micro_batch, {}, {}});
      if (i < own.size()) orders[at(d)].push_back({own[i].stage, own[i].micro_batch, {}, {}});
    }
  }
  return orders;
}

struct Message {
  int flow = 0;
  int micro_batch = 0;
  size_t needed = 0;    // slot of the receiver that first needs it
  size_t received = 0;  // slot before which it must be received, so that both ends have the same order
};

// Adds every slot's sends; answers the messages of each (source, destination) pair in the order they are sent.
std::vector<std::vector<Message>> send_messages(const std::vector<Flow>& flows, const Placement& placement,
                                                Orders& orders) {
  std::vector<std::vector<Message>> fifos(at(placement.devices) * at(placement.devices));
  std::vector<std::vector<int>> made_by(at(placement.stages) + 1);  // [stage + 1]: flows
  for (size_t f = 0; f < flows.size(); ++f) made_by[at(flows[f].producer + 1)].push_back(static_cast<int>(f));
  constexpr size_t no_slot = std::numeric_limits<size_t>::max();  // a sink that need not act
  std::vector<std::vector<size_t>> slot_of(at(placement.stages) + 1,
                                           std::vector<size_t>(at(placement.micro_batches), no_slot));
  for (const std::vector<OrderedSlot>& order : orders) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].stage >= 0) slot_of[at(order[i].stage)][at(order[i].micro_batch)] = i;
    }
  }
  std::vector<int> sent;
  for (int d = 0; d < placement.devices; ++d) {
    for (OrderedSlot& slot : orders[at(d)]) {
      if (slot.stage == placement.stages) continue;
      for (const int f : made_by[at(slot.stage + 1)]) {
        sent.clear();
        for (const int c : flows[at(f)].consumers) {
          const int to = placement.device_of(c, slot.micro_batch);
          if (to == d || std::find(sent.begin(), sent.end(), to) != sent.end()) continue;
          sent.push_back(to);
          slot.sends.push_back({f, to});
          size_t first = slot_of[at(c)][at(slot.micro_batch)];  // of the receiver's slots that need it
          for (const int other : flows[at(f)].consumers) {
            if (placement.device_of(other, slot.micro_batch) == to)
              first = std::min(first, slot_of[at(other)][at(slot.micro_batch)]);
          }
          CHECK(first != no_slot, "a message that no slot receives");
          fifos[at(d) * at(placement.devices) + at(to)].push_back({f, slot.micro_batch, first, 0});
        }
      }
      const int enters = slot.micro_batch + placement.in_flight;
      if (placement.in_flight > 0 && slot.stage == placement.stages - 1 && enters < placement.micro_batches) {
        const int to = placement.device_of(0, enters), credit = static_cast<int>(flows.size());
        if (to == d) continue;
        slot.sends.push_back({credit, to});
        fifos[at(d) * at(placement.devices) + at(to)].push_back({credit, enters, slot_of[0][at(enters)], 0});
      }
    }
  }
  return fifos;
}

// Adds every slot's recvs. A message that was sent before one that an earlier slot needs is received in a slot of its
// own ahead.
void receive_messages(const Placement& placement, std::vector<std::vector<Message>>& fifos, Orders& orders) {
  struct Ahead {
    size_t before;
    OrderedSlot slot;
  };
  for (int to = 0; to < placement.devices; ++to) {
    std::vector<OrderedSlot>& order = orders[at(to)];
    std::vector<Ahead> aheads;
    for (int from = 0; from < placement.devices; ++from) {
      std::vector<Message>& fifo = fifos[at(from) * at(placement.devices) + at(to)];
      size_t earliest = std::numeric_limits<size_t>::max();
      for (size_t i = fifo.size(); i-- > 0;) fifo[i].received = earliest = std::min(earliest, fifo[i].needed);
      for (size_t begin = 0; begin < fifo.size();) {
        size_t end = begin, own = begin;  // messages received at one slot; from `own` on they are all its own
        for (; end < fifo.size() && fifo[end].received == fifo[begin].received; ++end) {
          if (fifo[end].needed != fifo[end].received) own = end + 1;
        }
        for (size_t i = begin; i < end; ++i) {
          const Port port{fifo[i].flow, from};
          if (i >= own)
            order[fifo[i].received].recvs.push_back(port);
          else
            aheads.push_back({fifo[i].received, {ahead_stage, fifo[i].micro_batch, {port}, {}}});
        }
        begin = end;
      }
    }
    if (aheads.empty()) continue;
    std::stable_sort(aheads.begin(), aheads.end(), [](const Ahead& a, const Ahead& b) { return a.before < b.before; });
    std::vector<OrderedSlot> merged;
    size_t a = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      for (; a < aheads.size() && aheads[a].before == i; ++a) merged.push_back(std::move(aheads[a].slot));
      merged.push_back(std::move(order[i]));
    }
    order = std::move(merged);
  }
}

}  // namespace

Result<Orders> make_orders(const std::vector<Flow>& flows, const Placement& placement, const SlotTable& table,
                           const std::vector<std::vector<double>>& seconds) {
  Timeline time(flows, placement, table, seconds);
  RETURN_IF_ERROR(time.run());
  Orders orders = order_slots(flows, placement, table, time);
  std::vector<std::vector<Message>> fifos = send_messages(flows, placement, orders);
  receive_messages(placement, fifos, orders);
  return orders;
}

}  // namespace nlsplit
