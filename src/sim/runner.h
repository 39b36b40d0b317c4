// Runner: the life of activities (sim/timed_graph.h), driven by a clock. What counts as ready, posted, started and
// delivered, and whom the network card takes next, is written here once; the tiers differ in their clock only.
//
//   struct Clock {
//     void at(double time, uint32_t activity, Step step);   // later call runner.step(activity, step, time)
//     void flow(uint32_t activity, double now);             // move its bytes; then as above, with Step::flow_done
//   };
//   Runner runner(graph, timing, clock);
//   runner.begin();                                          // then the clock's loop; after the steps of a moment:
//   runner.admit(now);                                       // cards take messages, devices that choose begin slots
//   runner.unfinished();                                     // 0, or something never happened: runner.why()
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/readiness.h"
#include "sim/answers.h"
#include "sim/event_queue.h"
#include "sim/online.h"
#include "sim/runner_state.h"
#include "sim/senders.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

template <class Clock>
class Runner {
 public:
  Runner(const TimedGraph& graph, Timing& timing, Clock& clock)
      : graph_(graph), timing_(timing), clock_(clock), left_(graph.activities.size()), answers_(graph, timing, life_) {
    const size_t count = graph.activities.size();
    for (auto* times : {&timing.posted, &timing.start, &timing.moves, &timing.sent, &timing.finish})
      times->assign(count, 0);
    if (graph.has_queues) timing.released.assign(count, 0);
    timing.makespan = 0;
    timing.turn.clear();
    if (graph.online) {
      timing.turn.assign(count, -1);
      turns_.emplace(graph);
    }
    life_.resize(count);
    sleepers_.reset(event_count * count, 2 * count);
    edge_.resize(2 * count);
    for (size_t i = 0; i < count; ++i) edge_[2 * i] = edge_[2 * i + 1] = graph.edge_begin[i];
    computing_.assign(graph.host_of_device.size(), {});
    stolen_.assign(graph.host_of_device.size(), 0);
    computed_.assign(graph.host_of_device.size(), 0);
    if (std::ranges::any_of(graph.activities, [](const Activity& activity) { return activity.slowed > 0; }))
      ends_computed_.assign(count, 0);
    if (graph.nic_window > 0) {
      int hosts = 0;
      for (const int host : graph.host_of_device) hosts = std::max(hosts, host + 1);
      cards_.resize(static_cast<size_t>(hosts));
    }
  }

  void begin() {
    for (uint32_t i = 0; i < life_.size(); ++i) {
      if (graph_.activities[i].is_transfer) look(gate_of(i, Gate::post));
      look(gate_of(i, Gate::start));
    }
    settle(0);
    admit(0);
  }

  void step(uint32_t i, Step what, double now) {
    switch (what) {
      case Step::block_done:
        if (!is_stale(i, now)) block_done(i, now);
        break;
      case Step::handshake_done:
        handshake_done(i, now);
        break;
      case Step::released:
        release_or_wait(i, now);
        break;
      case Step::flow_done:
        flow_done(i, now);
        break;
      case Step::arrived:
        arrived(i, now);
        break;
    }
    settle(now);
  }

  // When all of a moment is known: what is taken in turns.
  void admit(double now) {
    admit_messages(now);
    if (!turns_) return;
    double turn = 0;
    while (const std::optional<uint32_t> block = turns_->next(now, turn)) {
      timing_.turn[*block] = turn;
      start_block(*block, now);
      settle(now);
      admit_messages(now);
    }
  }

  // Whether `admit` may have something to do.
  bool has_asked() const { return !asked_.empty() || (turns_ && turns_->may_have_next()); }

  size_t unfinished() const { return left_; }
  // Why something is unfinished though nothing is under way: an online policy chose nobody.
  std::optional<Error> why() const { return turns_ && left_ > 0 ? std::optional(turns_->stuck()) : std::nullopt; }

 private:
  // Lets the cards take messages that asked for them up to now.
  void admit_messages(double now) {
    while (!asked_.empty()) {
      Card& card = cards_[static_cast<size_t>(asked_.back())];
      asked_.pop_back();
      while (card.moving < graph_.nic_window && !card.waiting.empty()) {
        const uint32_t i = card.waiting.top().activity;
        card.waiting.pop();
        ++card.moving;
        start_flow(i, now);
        settle(now);
      }
    }
  }

  // Opens gates until nothing more happens at this moment. A list instead of recursion: chains of instant activities
  // may be long.
  void settle(double now) {
    while (!open_.empty()) {
      const uint32_t gate = open_.back(), i = gate / 2;
      open_.pop_back();
      if (gate == gate_of(i, Gate::post)) {
        posted(i, now);
      } else if (graph_.activities[i].is_transfer) {
        ready(i, now);
      } else if (turns_ && turns_->begins_slot(i)) {
        turns_->ready(i, now);
      } else {
        start_block(i, now);
      }
    }
  }

  void start_block(uint32_t i, double now) {
    timing_.start[i] = timing_.moves[i] = now;
    const double duration = graph_.activities[i].duration;
    if (duration > 0)
      begin_block(i, duration, now);
    else
      block_done(i, now);
  }

  static uint32_t gate_of(uint32_t i, Gate gate) { return 2 * i + static_cast<uint32_t>(gate); }
  bool has(uint32_t i, Event event) const { return life_[i].happened[static_cast<size_t>(event)]; }

  // Opens a gate, or lets it sleep on the first event it needs that has not happened.
  void look(uint32_t gate) {
    const uint32_t i = gate / 2;
    for (uint32_t& e = edge_[gate]; e < graph_.edge_begin[i + 1]; ++e) {
      const TimedEdge& edge = graph_.edges[e];
      if (gate_of(i, edge.what) != gate || has(edge.from, edge.when)) continue;
      return sleepers_.sleep(gate, event_count * edge.from + static_cast<size_t>(edge.when));
    }
    open_.push_back(gate);
  }

  // What an event opens is acted upon from the last activity to the first, whoever slept first.
  void fire(uint32_t i, Event event) {
    life_[i].happened[static_cast<size_t>(event)] = true;
    const size_t before = open_.size();
    sleepers_.wake(event_count * i + static_cast<size_t>(event), [this](uint32_t gate) { look(gate); });
    if (open_.size() > before + 1) std::ranges::sort(open_.begin() + static_cast<std::ptrdiff_t>(before), open_.end());
  }

  void finish(uint32_t i, double now) {
    timing_.finish[i] = now;
    timing_.makespan = std::max(timing_.makespan, now);
    --left_;
    fire(i, Event::delivered);
  }

  size_t device_of(uint32_t i) const { return static_cast<size_t>(graph_.activities[i].device); }

  void steal(int device, double overhead) {
    const auto d = static_cast<size_t>(device);
    if (computing_[d].active) stolen_[d] += overhead;
  }

  void begin_block(uint32_t i, double duration, double now) {
    const size_t device = device_of(i);
    Computing& computing = computing_[device];
    computing = {true, i, duration, now, 1, end_of(device, now, duration)};
    if (shares_machine(device))
      pace(device, now);
    else
      clock_.at(computing.due, i, Step::block_done);
  }

  // An end that was foreseen before the pace changed.
  bool is_stale(uint32_t i, double now) const {
    const Computing& it = computing_[device_of(i)];
    return shares_machine(device_of(i)) && !(it.active && it.block == i && it.due == now);
  }

  // When a device that begins now has done what takes `work` seconds at its usual speed; and how much of such work it
  // has done since then.
  double end_of(size_t device, double now, double work) const {
    return graph_.slowness.empty() ? now + work : nlsplit::end_of(graph_.slowness[device], now, work);
  }
  double done_since(size_t device, double since, double now) const {
    return graph_.slowness.empty() ? now - since : done_between(graph_.slowness[device], since, now);
  }

  bool shares_machine(size_t device) const { return graph_.machine_of_device[device] >= 0; }

  // Somebody on the device's machine has begun or ended: all that compute there go on at another pace.
  void pace(size_t device, double now) {
    const int machine = graph_.machine_of_device[device];
    int others = -1;
    for (size_t d = 0; d < computing_.size(); ++d)
      others += graph_.machine_of_device[d] == machine && computing_[d].active ? 1 : 0;
    for (size_t d = 0; d < computing_.size(); ++d) {
      Computing& it = computing_[d];
      if (graph_.machine_of_device[d] != machine || !it.active) continue;
      const Activity& block = graph_.activities[it.block];
      it.left = std::max(0.0, it.left - done_since(d, it.since, now) / it.slowness);
      it.since = now;
      it.slowness = 1 + others * block.company / block.duration;
      it.due = end_of(d, now, it.left * it.slowness);
      clock_.at(it.due, it.block, Step::block_done);
    }
  }

  void block_done(uint32_t i, double now) {
    const size_t device = device_of(i);
    Computing& computing = computing_[device];
    if (stolen_[device] > 0) {
      computing.left = std::exchange(stolen_[device], 0);
      computing.since = now;
      computing.due = end_of(device, now, computing.left * computing.slowness);
      clock_.at(computing.due, i, Step::block_done);
      return;
    }
    const bool was_computing = std::exchange(computing.active, false);
    if (was_computing) computed_[device] += now - timing_.start[i];
    if (was_computing && shares_machine(device)) pace(device, now);
    timing_.posted[i] = timing_.sent[i] = now;
    finish(i, now);
    if (turns_) turns_->block_ended(i);
  }

  void posted(uint32_t i, double now) {
    timing_.posted[i] = now;
    fire(i, Event::posted);
    if (life_[i].arrived) {
      finish(i, now);
    } else if (has(i, Event::ready) && graph_.activities[i].waits) {
      shake_hands(i, now);
    }
  }

  void ready(uint32_t i, double now) {
    life_[i].ready = now;
    timing_.start[i] = requested_at(graph_, timing_, i, now);
    fire(i, Event::ready);
    if (graph_.activities[i].streams) {
      hand_over(i, now);
      ask_for_lane(i, now);
    } else if (graph_.activities[i].eager) {
      ask_for_lane(i, now);
    } else if (!graph_.activities[i].waits || has(i, Event::posted)) {
      shake_hands(i, now);
    }
  }

  void shake_hands(uint32_t i, double now) {
    const double handshake = graph_.activities[i].handshake + answers_.delay(i);
    answers_.hold_up_others(i);
    timing_.moves[i] = now + handshake;  // at the earliest
    answers_.add(i);
    if (handshake > 0) {
      clock_.at(now + handshake, i, Step::handshake_done);
    } else {
      handshake_done(i, now);
    }
  }

  // Two ends that compute make it longer, once. They are looked at now: what has begun at the moment of its beginning
  // is known.
  void handshake_done(uint32_t i, double now) {
    const Activity& transfer = graph_.activities[i];
    if (!std::exchange(life_[i].ends_seen, true)) {
      const bool both = computing_[device_of(i)].active && computing_[static_cast<size_t>(transfer.peer)].active;
      if (both && transfer.busy > 0) {
        timing_.moves[i] = now + transfer.busy;
        clock_.at(now + transfer.busy, i, Step::handshake_done);
        return;
      }
    }
    ask_for_lane(i, now);
  }

  // Its bytes follow those that its connection still has to move. Its sender is done with it once the socket holds the
  // rest.
  void hand_over(uint32_t i, double now) {
    const Activity& transfer = graph_.activities[i];
    Lane& lane = lane_of_transfer(transfer);
    lane.free = std::max(lane.free, now) + transfer.duration;
    const double at = std::max(now + transfer.handover, lane.free - transfer.queued);
    if (at > now)
      clock_.at(at, i, Step::released);
    else
      release(i, now);
  }

  Lane& lane_of_transfer(const Activity& activity) { return lanes_[DevicePair(activity)]; }

  // Whether messages of its two devices move one at a time, whatever their tags are.
  bool in_turns(uint32_t i) const { return turns_ || graph_.activities[i].streams; }

  // It could start.
  void ask_for_lane(uint32_t i, double now) {
    if (!in_turns(i)) {
      ask_for_card(i, now);
      return;
    }
    Lane& lane = lane_of_transfer(graph_.activities[i]);
    if (lane.taken) {
      lane.waiting.push({now, i, Step::flow_done});
    } else {
      lane.taken = true;
      ask_for_card(i, now);
    }
  }

  // Its last byte has left.
  void leave_lane(uint32_t i, double now) {
    Lane& lane = lane_of_transfer(graph_.activities[i]);
    lane.taken = !lane.waiting.empty();
    if (!lane.taken) return;
    const uint32_t next = lane.waiting.top().activity;
    lane.waiting.pop();
    ask_for_card(next, now);
  }

  int card_of(const Activity& activity) const {
    if (cards_.empty()) return -1;
    const int from = graph_.host_of_device[static_cast<size_t>(activity.device)];
    return from == graph_.host_of_device[static_cast<size_t>(activity.peer)] ? -1 : from;
  }

  void ask_for_card(uint32_t i, double now) {
    const int card = card_of(graph_.activities[i]);
    if (card < 0) {
      start_flow(i, now);
    } else {
      cards_[static_cast<size_t>(card)].waiting.push({now, i, Step::flow_done});
      asked_.push_back(card);
    }
  }

  void start_flow(uint32_t i, double now) {
    timing_.moves[i] = now;
    const Activity& activity = graph_.activities[i];
    if (activity.slowed > 0) ends_computed_[i] = ends_computed(activity, now);
    if (activity.queued > 0 && !activity.eager && !activity.streams) {
      if (activity.until_released() > 0)
        clock_.at(now + activity.until_released(), i, Step::released);
      else
        release(i, now);
    }
    if (activity.duration > 0) {
      if (activity.eager) answers_.add(i);
      clock_.flow(i, now);
    } else {
      flow_done(i, now);  // nothing to move, or no distance
    }
  }

  // Seconds both ends of a message have computed by now, the mean of the two.
  double ends_computed(const Activity& transfer, double now) const {
    const auto of = [&](int device) {
      const auto d = static_cast<size_t>(device);
      return computed_[d] + (computing_[d].active ? now - timing_.start[computing_[d].block] : 0);
    };
    return (of(transfer.device) + of(transfer.peer)) / 2;
  }

  // How much longer a message takes whose ends computed while it moved: what they kept it from, at the same pace.
  double delay(uint32_t i, double now) const {
    const Activity& transfer = graph_.activities[i];
    const double moving = now - timing_.moves[i];
    if (transfer.slowed <= 0 || moving <= 0) return 0;
    const double share = (ends_computed(transfer, now) - ends_computed_[i]) / moving;
    const double lost = share * transfer.slowed / (1 + transfer.slowed);
    return moving * lost / (1 - lost);
  }

  void flow_done(uint32_t i, double now) {
    const Activity& activity = graph_.activities[i];
    if (!life_[i].delayed) {
      if (const double late = delay(i, now) + answers_.late(i); late > 0) {
        life_[i].delayed = true;
        clock_.at(now + late, i, Step::flow_done);
        return;
      }
    }
    timing_.sent[i] = now;
    answers_.remove(i);
    if (activity.sender_overhead > 0) steal(activity.device, activity.sender_overhead);
    if (activity.receiver_overhead > 0) steal(activity.peer, activity.receiver_overhead);
    if (const int card = card_of(activity); card >= 0) {
      --cards_[static_cast<size_t>(card)].moving;
      asked_.push_back(card);
    }
    if (in_turns(i)) leave_lane(i, now);
    release(i, now);
    fire(i, Event::sent);
    if (activity.latency > 0) {
      clock_.at(now + activity.latency, i, Step::arrived);
    } else {
      arrived(i, now);
    }
  }

  // Its sender's buffer is free.
  void release(uint32_t i, double now) {
    if (has(i, Event::released)) return;
    if (graph_.has_queues) timing_.released[i] = now;
    fire(i, Event::released);
  }

  // What was answered late is handed over late.
  void release_or_wait(uint32_t i, double now) {
    const double late = answers_.late(i) - std::exchange(life_[i].waited_for_answer, answers_.late(i));
    if (late > 0)
      clock_.at(now + late, i, Step::released);
    else
      release(i, now);
  }

  void arrived(uint32_t i, double now) {
    life_[i].arrived = true;
    if (has(i, Event::posted)) finish(i, now);
  }

  const TimedGraph& graph_;
  Timing& timing_;
  Clock& clock_;
  size_t left_;
  std::vector<Life> life_;
  Sleepers sleepers_;                  // gates, each on an event: event_count for each activity
  std::vector<uint32_t> edge_;         // [gate]: the edge that it looks at
  std::vector<uint32_t> open_;         // gates that opened and are not yet acted upon
  std::vector<Computing> computing_;   // by device
  std::vector<double> stolen_;         // by device: seconds that messages took from it so far
  std::vector<double> computed_;       // by device: seconds it computed until its last block's end
  std::vector<double> ends_computed_;  // by activity: what its ends had when it began to move; empty: nothing is slowed
  Answers answers_;
  std::vector<Card> cards_;                                       // by host; empty without a window
  std::vector<int> asked_;                                        // cards that may have something to take
  std::optional<Turns> turns_;                                    // online
  std::unordered_map<DevicePair, Lane, DevicePair::Hash> lanes_;  // online
};

}  // namespace nlsplit::inline sim
