// SharedClock: the time of a whole graph. SharedFlows moves the messages that share links unevenly, on a clock of its
// own; EvenClock does the rest.
//
//   SharedClock clock(graph, cluster, timing, flows, unit);
//   clock.begin();
//   …                     // flows tell it of alarms and of messages that are over, in the order of their clock
//   clock.unfinished();   // 0, or why()
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/simgrid/even_clock.h"

namespace nlsplit::inline sim {

enum class Alarm : uint8_t { step, admission };

// Moves messages over shared links, max-min fair: SimGrid (engine.cc), or FairFlows with the same bits (fair_flows.h).
// Times are in units of `unit`, bytes in parts.
class SharedFlows {
 public:
  SharedFlows() = default;
  SharedFlows(const SharedFlows&) = delete;
  SharedFlows& operator=(const SharedFlows&) = delete;
  virtual ~SharedFlows() = default;

  virtual double clock() const = 0;
  virtual void set(Alarm alarm, double at) = 0;  // which is not set
  virtual void cancel(Alarm alarm) = 0;          // which is set
  virtual void move(uint32_t activity, uint64_t parts) = 0;
};

// SimGrid compares times with an absolute precision, so flows have them in a unit of about the makespan. A power of
// two: scaling changes no bits. The fast tier's answer is a lower bound, and so is what each link and device must do.
// `timing` is overwritten; its memory serves again.
double time_unit(const TimedGraph& graph, const Cluster& cluster, Timing& timing);

// SimGrid counts whole bytes. On a measured route a message loads its links with more or fewer bytes than it has, not
// always a whole number, on a fast route perhaps none. So bytes are given in parts of a byte, a power of two.
constexpr double parts_of_a_byte = 4096;
inline double parts_per_unit(BytesPerSecond bandwidth, double unit) {
  return bandwidth.value() * parts_of_a_byte * unit;
}

class SharedClock : private EvenClock {
 public:
  // `changing`: links whose bandwidth changes. Where there are any, time is always that of `flows`.
  SharedClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing, SharedFlows& flows, double unit,
              const std::vector<LinkId>& changing = {});

  void begin();
  void on_alarm(Alarm alarm);
  void flow_ended(uint32_t activity);

  bool is_over() const { return shared_ == 0 && waiting_.empty() && queue_.empty() && !admission_is_set_; }
  size_t unfinished() const { return EvenClock::unfinished(); }
  // Why activities are left although nothing is in progress: an online policy chose no slot.
  std::optional<Error> why() const { return runner_.why(); }

 private:
  bool needs_flows() const { return shared_ > 0 || links_change_; }
  void begin_shared();
  void go_on_without();
  void cancel_step();
  void arm();
  void after_steps();
  void admit_after_this_moment();
  double clock() const { return flows_.clock() * unit_; }

  SharedFlows& flows_;
  const double unit_;
  const bool links_change_;
  std::optional<double> step_due_;  // the alarm's
  bool admission_is_set_ = false;
  size_t shared_ = 0;  // messages that they move
};

}  // namespace nlsplit::inline sim
