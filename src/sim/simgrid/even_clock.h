// EvenClock: time as long as nobody has to work out who gets which part of a link. Messages that have their way to
// themselves take what they take alone, and those that share evenly (even_flows.h) have rates that are known.
//
//   Timing timing;
//   if (!run_evenly(graph, cluster, timing)) …   // it takes a SharedClock (shared_clock.h), from the beginning
#pragma once

#include <cstdint>
#include <vector>

#include "sim/runner.h"
#include "sim/simgrid/even_flows.h"
#include "sim/simgrid/lone_flows.h"

namespace nlsplit::inline sim {

// Steps are queued here and not in SimGrid, which has one timer, for the earliest of them: so steps of one moment come
// in a fixed order. Nor does SimGrid get a message that has its way to itself, before another one joins it, nor
// messages that all have the same rate (SimGrid 3.32 looks through all it moves whenever one of them ends).
class EvenClock {
 public:
  // `unsteady`: links whose bandwidth changes.
  EvenClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing, const std::vector<LinkId>& unsteady);
  EvenClock(const EvenClock&) = delete;
  EvenClock& operator=(const EvenClock&) = delete;

  void begin() { runner_.begin(); }
  // On to the end, or to a moment at which messages begin to share unevenly.
  void go_on();
  // Activities that have not ended: if there are any after go_on(), messages wait to share unevenly, or nothing happens
  // any more.
  size_t unfinished() const { return runner_.unfinished(); }

  void at(double time, uint32_t activity, Step step) { queue_.push({time, activity, step}); }
  void flow(uint32_t activity, double now);

 protected:
  // How a message moves: by itself, with others though the end it had alone is still in the queue, or neither.
  enum class Way : uint8_t { not_here, alone, joined };

  double next_time() const;
  void take_steps(double until);  // all up to a moment

  const TimedGraph& graph_;
  const Timing& timing_;
  Runner<EvenClock> runner_;
  EventQueue queue_;
  double now_ = 0;                        // of the last steps
  std::vector<EvenFlows::Rest> waiting_;  // that are to move with others from this moment on
  LoneFlows lone_;

 private:
  void share(uint32_t activity, double rest);
  bool share_evenly();
  void end_even();

  std::vector<Way> ways_;  // by activity
  std::vector<uint32_t> joined_;
  EvenFlows even_;
  std::vector<uint32_t> ended_;
};

// The whole graph without SimGrid, with the bits that it has with it. False: it cannot be; links change their
// bandwidth, messages share links unevenly at some moment, or nothing happens any more before all has ended.
bool run_evenly(const TimedGraph& graph, const Cluster& cluster, Timing& timing);

}  // namespace nlsplit::inline sim
