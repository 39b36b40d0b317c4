// EvenClock: simulated time while no max-min fair rates have to be computed. A message that shares no link takes its
// time alone, and messages that share links evenly (even_flows.h) have known rates.
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

// Steps are queued here; SimGrid has one timer, for the earliest of them. So steps at one time come in a fixed order.
// SimGrid does not get a message while it shares no link, nor messages that all have the same rate: SimGrid 3.32 goes
// through all its flows whenever one of them ends.
class EvenClock {
 public:
  // `unsteady`: links whose bandwidth changes.
  EvenClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing, const std::vector<LinkId>& unsteady);
  EvenClock(const EvenClock&) = delete;
  EvenClock& operator=(const EvenClock&) = delete;

  void begin() { runner_.begin(); }
  // Runs to the end, or until messages begin to share links unevenly.
  void go_on();
  // Activities that have not ended. Any left after go_on(): messages would share links unevenly from now on, or the
  // graph is stuck.
  size_t unfinished() const { return runner_.unfinished(); }

  void at(double time, uint32_t activity, Step step) { queue_.push({time, activity, step}); }
  void flow(uint32_t activity, double now);

 protected:
  // How a message moves: alone; with others, while the end that it had alone is still in the queue; or not here.
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

// The whole graph without SimGrid, with the bits of SimGrid's result. False: impossible, because links change their
// bandwidth, messages share links unevenly at some time, or the graph gets stuck before its end.
bool run_evenly(const TimedGraph& graph, const Cluster& cluster, Timing& timing);

}  // namespace nlsplit::inline sim
