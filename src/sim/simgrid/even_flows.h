// EvenFlows: messages that share links, where max-min fairness gives the same rate to all messages that share with each
// other, directly or through others. Their rate is their share of the narrowest link direction (lane), which each of
// them crosses. That is the case when a group sends shares to all its members at once, which is many messages.
//
//   if (flows.begin(now, joining)) …      // with those that move already
//   else flows.give_up(rests);            // FairFlows or SimGrid must move them
//   flows.next();                         // when the next one is over; then take_ended()
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cost/cluster.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

class EvenFlows {
 public:
  using Rest = std::pair<uint32_t, double>;  // an activity, and the bytes of it that have yet to move

  EvenFlows(const TimedGraph& graph, const Cluster& cluster);

  // Works out the rates from now on. False: they are not even; who moves has then moved up to now.
  bool begin(double now, const std::vector<Rest>& joining);
  void give_up(std::vector<Rest>& rests);  // adds all, and has none any more

  double next() const { return next_; }           // infinite: none moves
  bool has_ended() const { return has_ended_; }   // so rates have to be worked out again
  void take_ended(std::vector<uint32_t>& ended);  // adds those that are over at next()

 private:
  struct Flow {
    uint32_t activity;
    double rest, rate, end;
  };
  const std::vector<uint32_t>& lanes_of(const Flow& flow) const {
    return lanes_[static_cast<size_t>(graph_.activities[flow.activity].route)];
  }
  uint32_t first_of(uint32_t lane);
  void count_flows();
  bool set_rates();

  const TimedGraph& graph_;
  std::vector<std::vector<uint32_t>> lanes_;  // [route]: that messages share; none: a way that is not to be counted so
  std::vector<double> alone_;                 // [route]: the rate that its other links allow
  std::vector<double> bandwidth_;             // [lane]
  std::vector<Flow> flows_;
  double since_ = 0;
  double next_ = std::numeric_limits<double>::infinity();
  bool has_ended_ = false;
  // While rates are worked out, by lane; lanes that share messages are joined.
  std::vector<uint32_t> used_, count_, joined_;
  std::vector<double> least_;
};

}  // namespace nlsplit::inline sim
