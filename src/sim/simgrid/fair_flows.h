// FairFlows: messages that share links, as SimGrid 3.32 moves them (model CM02, links without latency), to the last
// bit: the same arithmetic, in the same order. A child process with a SimGrid engine takes several times as long
// (docs/performance.md).
//
//   Timing timing;
//   if (!run_here(graph, cluster, timing)) …   // SimGrid has to run it, from the beginning
//
// Max-min fair: the link that allows the least rate gives each of its messages that; what they leave of other links is
// shared by the others there; and so on. Rates are worked out anew when a message begins or ends, for all that share
// links with it, directly or over others. tests/sim/fair_flows_test.cc holds it against SimGrid.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sim/simgrid/shared_clock.h"

namespace nlsplit::inline sim {

class FairFlows final : public SharedFlows {
 public:
  FairFlows(const TimedGraph& graph, const Cluster& cluster, double unit);

  double clock() const override { return now_; }
  void set(Alarm alarm, double at) override;
  void cancel(Alarm alarm) override;
  void move(uint32_t activity, uint64_t parts) override;

  // Until nothing is left to do. False: it cannot say what SimGrid does here.
  bool run(SharedClock& clock);

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  struct Flow {
    uint32_t activity = 0;
    double rest = 0;  // parts that had yet to move at `since`
    double since = 0;
    double pace = 0;                // at which it moves since then
    double rate = 0;                // what it has been given; 0: nothing yet
    uint64_t foreseen = 0;          // whose end was worked out first
    size_t on = 0;                  // so many of its lanes know of it
    uint64_t seen = 0, shared = 0;  // in which round
  };
  struct Lane {
    double bandwidth = 0;
    bool fair = true;             // false: each message has all of it
    bool changed = false;         // who moves on it
    std::vector<uint32_t> flows;  // in the order in which they came
    double left = 0;              // while rates are worked out: for flows that have none yet
    size_t without = 0;           // the number of those
    double fair_share() const { return fair ? left / static_cast<double>(without) : bandwidth; }
  };
  struct Ring {
    double at = 0;
    uint64_t number = 0;  // of those set at once the first rings first
  };

  const std::vector<uint32_t>& lanes_of(uint32_t flow) const;
  void note_change(uint32_t lane);
  void spread(uint32_t lane);
  bool share_anew();
  bool set_rates();
  void foresee(uint32_t flow);
  uint32_t first_to_end() const;
  double until_next() const;
  std::optional<Alarm> first_alarm() const;
  void end_flows();
  bool ring(SharedClock& clock);
  void tell_of_ends(SharedClock& clock);
  void remove(uint32_t flow);

  const TimedGraph& graph_;
  std::vector<std::vector<uint32_t>> route_lanes_;
  std::vector<Lane> lanes_;
  std::vector<Flow> flows_;
  std::vector<double> ends_;            // [flow]; never: it is none, or over
  std::vector<uint32_t> free_, ended_;  // flows: numbers that can be used again; ended, but not yet reported
  std::vector<uint32_t> changed_;       // lanes, in the order in which SimGrid comes upon them
  std::vector<uint32_t> open_, given_;  // while rates are worked out: lanes and flows
  std::array<std::optional<Ring>, 2> alarms_;
  double now_ = 0;
  uint64_t round_ = 1, foreseen_ = 0, rings_ = 0;
  bool can_ = true;
};

// The whole graph in this process, with the bits that it has with SimGrid. False: it cannot be; links change their
// bandwidth, a route passes a link twice, or nothing happens any more before all has ended.
bool run_here(const TimedGraph& graph, const Cluster& cluster, Timing& timing);

}  // namespace nlsplit::inline sim
