// Readiness: who may go on, as events happen. Whoever waits looks at the events it needs one after the other, and
// sleeps on the first that has not happened. That one wakes it, to look further. So each need is looked at once,
// nothing is counted beforehand, and needs may be a list or be worked out when asked.
//
//   Sleepers sleepers(events, waiters);
//   sleepers.sleep(waiter, event);   // it looked, and this event is missing
//   sleepers.wake(event, look);      // the event has happened: look(waiter) for each that slept on it
//
// TimeQueue: what is to come in time, the earliest first.
//
// The dry run, the play of schedules and of the compiler, and both tiers of the simulator use these. Without them do
//   - the closed sweep (sim/fast.cc): its activities come in an order that is known
//   - run_online (schedule/online.cc): a slot needs one event, which carries it along
//   - exec/device_index.h: it counts, because two threads tell each other of ends under a lock
//   - emulate/fluid.h: it shares links among packets, and nothing in it waits for an event
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace nlsplit::inline base {

class Sleepers {
 public:
  Sleepers() = default;
  Sleepers(size_t events, size_t waiters) { reset(events, waiters); }
  // Nobody sleeps.
  void reset(size_t events, size_t waiters) {
    first_.assign(events, nobody);
    next_.resize(waiters);
  }

  // A waiter sleeps on one event at a time.
  void sleep(uint32_t waiter, size_t event) { next_[waiter] = std::exchange(first_[event], waiter); }

  // Calls look(waiter) for each that slept on the event, the last to come first. It may sleep again, on another event.
  template <class Look>
  void wake(size_t event, const Look& look) {
    for (uint32_t waiter = std::exchange(first_[event], nobody); waiter != nobody;) {
      const uint32_t after = next_[waiter];
      look(waiter);
      waiter = after;
    }
  }

 private:
  static constexpr uint32_t nobody = ~0u;
  std::vector<uint32_t> first_;  // [event]: who sleeps on it
  std::vector<uint32_t> next_;   // [waiter]: another that sleeps on the same
};

// An Event has a total order, by time first.
template <class Event>
using TimeQueue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;

}  // namespace nlsplit::inline base
