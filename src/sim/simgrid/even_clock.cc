#include "sim/simgrid/even_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace nlsplit::inline sim {

EvenClock::EvenClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing,
                     const std::vector<LinkId>& unsteady)
    : graph_(graph),
      timing_(timing),
      runner_(graph, timing, *this),
      lone_(graph, cluster, unsteady),
      ways_(graph.activities.size(), Way::not_here),
      even_(graph, cluster) {}

void EvenClock::flow(uint32_t activity, double now) {
  joined_.clear();
  if (lone_.begin(activity, joined_)) {
    ways_[activity] = Way::alone;
    at(now + graph_.activities[activity].duration, activity, Step::flow_done);
    return;
  }
  for (const uint32_t other : joined_) {
    const double duration = graph_.activities[other].duration;
    ways_[other] = Way::joined;
    share(other, std::max(0.0, timing_.moves[other] + duration - now) / duration);
  }
  share(activity, 1);
}

// The rest of a message moves with others: by share_evenly(), or by SimGrid.
void EvenClock::share(uint32_t activity, double rest) {
  waiting_.emplace_back(activity, graph_.activities[activity].bytes * rest);
}

// At the end of a moment, while SimGrid moves nothing. False: what waits is for SimGrid.
bool EvenClock::share_evenly() {
  if (waiting_.empty() && !even_.has_ended()) return true;
  const bool even = even_.begin(now_, waiting_);
  waiting_.clear();
  if (!even) even_.give_up(waiting_);
  return even;
}

double EvenClock::next_time() const {
  return std::min(even_.next(), queue_.empty() ? std::numeric_limits<double>::infinity() : queue_.top().time);
}

void EvenClock::take_steps(double until) {
  while (next_time() <= until) {
    if (even_.next() <= next_time()) {
      end_even();
      continue;
    }
    const TimedStep next = queue_.top();
    queue_.pop();
    if (next.step == Step::flow_done) {
      const Way way = std::exchange(ways_[next.activity], Way::not_here);
      if (way == Way::joined) continue;
      if (way == Way::alone) lone_.end(next.activity);
    }
    runner_.step(next.activity, next.step, next.time);
  }
}

void EvenClock::end_even() {
  const double now = even_.next();
  ended_.clear();
  even_.take_ended(ended_);
  for (const uint32_t activity : ended_) {
    lone_.end(activity);
    runner_.step(activity, Step::flow_done, now);
  }
}

void EvenClock::go_on() {
  for (;;) {
    take_steps(now_);
    if (runner_.has_asked()) runner_.admit(now_);
    if (next_time() <= now_) continue;
    if (!share_evenly() || std::isinf(next_time())) return;
    now_ = std::max(now_, next_time());
  }
}

bool run_evenly(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  if (!graph.courses.empty()) return false;
  EvenClock clock(graph, cluster, timing, {});
  clock.begin();
  clock.go_on();
  return clock.unfinished() == 0;
}

}  // namespace nlsplit::inline sim
