#include "sim/simgrid/fair_flows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nlsplit::inline sim {
namespace {

// SimGrid's: of bandwidths its default, of times as engine.cc sets it.
constexpr double bandwidth_precision = 1e-5, time_precision = 1e-13;
constexpr double rest_precision = bandwidth_precision * time_precision;

double less(double value, double by, double precision) {
  value -= by;
  return value < precision ? 0 : value;
}

}  // namespace

FairFlows::FairFlows(const TimedGraph& graph, const Cluster& cluster, double unit)
    : graph_(graph), lanes_(cluster.links.size() * 2) {
  for (const Route& route : graph.routes) {
    std::vector<uint32_t>& lanes = route_lanes_.emplace_back();
    for (const Hop& hop : route.hops) {
      const Link& link = cluster.links[hop.link.index()];
      const auto lane = static_cast<uint32_t>(lane_of(cluster, hop));
      lanes_[lane].bandwidth = parts_per_unit(link.bandwidth, unit);
      lanes_[lane].fair = link.shared;
      lanes.push_back(lane);
    }
  }
}

const std::vector<uint32_t>& FairFlows::lanes_of(uint32_t flow) const {
  return route_lanes_[static_cast<size_t>(graph_.activities[flows_[flow].activity].route)];
}

void FairFlows::set(Alarm alarm, double at) { alarms_[static_cast<size_t>(alarm)] = Ring{at, ++rings_}; }
void FairFlows::cancel(Alarm alarm) { alarms_[static_cast<size_t>(alarm)].reset(); }

void FairFlows::move(uint32_t activity, uint64_t parts) {
  uint32_t flow = 0;
  if (free_.empty()) {
    flow = static_cast<uint32_t>(flows_.size());
    flows_.emplace_back();
    ends_.push_back(never);
  } else {
    flow = free_.back();
    free_.pop_back();
  }
  flows_[flow] = {.activity = activity, .rest = static_cast<double>(parts), .since = now_};
  if (lanes_of(flow).empty()) can_ = false;
  for (const uint32_t lane : lanes_of(flow)) {
    std::vector<uint32_t>& others = lanes_[lane].flows;
    const bool twice = !others.empty() && others.back() == flow;
    if (!(lanes_[lane].bandwidth > 0) || twice) can_ = false;
    others.push_back(flow);
    ++flows_[flow].on;
    note_change(lane);
  }
}

void FairFlows::remove(uint32_t flow) {
  note_change(lanes_of(flow).front());
  for (const uint32_t lane : lanes_of(flow)) std::erase(lanes_[lane].flows, flow);
  free_.push_back(flow);
}

// Lanes are noted in SimGrid's order, for the ends of flows are foreseen in it, and those of one moment come so.
void FairFlows::note_change(uint32_t lane) {
  if (std::exchange(lanes_[lane].changed, true)) return;
  changed_.push_back(lane);
  spread(lane);
}

// To all lanes on which flows of this one move too, the flows that came last first.
void FairFlows::spread(uint32_t lane) {
  const std::vector<uint32_t>& flows = lanes_[lane].flows;
  for (size_t k = flows.size(); k-- > 0;) {
    const uint32_t f = flows[k];
    const std::vector<uint32_t>& lanes = lanes_of(f);
    for (size_t i = 0; i < flows_[f].on && flows_[f].seen != round_; ++i) note_change(lanes[i]);
    flows_[f].seen = round_;
  }
}

// The rates of all flows on lanes that have changed, and when these flows will end.
bool FairFlows::share_anew() {
  if (!can_) return false;
  if (changed_.empty()) return true;
  if (!set_rates()) return false;
  for (const uint32_t lane : changed_) {
    const std::vector<uint32_t>& flows = lanes_[lane].flows;
    for (size_t k = flows.size(); k-- > 0;) {
      if (std::exchange(flows_[flows[k]].shared, round_) != round_) foresee(flows[k]);
    }
    lanes_[lane].changed = false;
  }
  changed_.clear();
  ++round_;
  return true;
}

// False: rounding left nothing of a lane to flows that have no rate yet.
bool FairFlows::set_rates() {
  open_.clear();
  for (const uint32_t l : changed_) {
    Lane& lane = lanes_[l];
    lane.left = lane.bandwidth;
    lane.without = lane.flows.size();
    for (const uint32_t f : lane.flows) flows_[f].rate = 0;
    if (lane.without > 0) open_.push_back(l);
  }
  while (!open_.empty()) {
    double least = never;
    for (const uint32_t l : open_) least = std::min(least, lanes_[l].fair_share());
    given_.clear();
    for (const uint32_t l : open_) {
      if (lanes_[l].fair_share() != least) continue;
      for (const uint32_t f : lanes_[l].flows) {
        if (flows_[f].rate > 0) continue;
        flows_[f].rate = least;
        given_.push_back(f);
      }
    }
    for (const uint32_t f : given_) {
      for (const uint32_t l : lanes_of(f)) {
        Lane& lane = lanes_[l];
        lane.left = less(lane.left, least, lane.bandwidth * bandwidth_precision);
        --lane.without;
      }
    }
    std::erase_if(open_, [this](uint32_t l) { return lanes_[l].without == 0; });
    const auto is_full = [this](uint32_t l) {
      return lanes_[l].fair && lanes_[l].left <= lanes_[l].bandwidth * bandwidth_precision;
    };
    if (std::ranges::any_of(open_, is_full)) return false;
  }
  return true;
}

void FairFlows::foresee(uint32_t f) {
  Flow& flow = flows_[f];
  if (flow.rest > 0) flow.rest = less(flow.rest, flow.pace * (now_ - flow.since), rest_precision);
  flow.since = now_;
  flow.pace = flow.rate;
  ends_[f] = now_ + (flow.rest > 0 ? flow.rest / flow.rate : 0);
  flow.foreseen = ++foreseen_;
}

// Of those that end at once the one whose end was foreseen first.
uint32_t FairFlows::first_to_end() const {
  uint32_t first = 0;
  for (uint32_t f = 1; f < ends_.size(); ++f) {
    if (ends_[f] < ends_[first] || (ends_[f] == ends_[first] && flows_[f].foreseen < flows_[first].foreseen)) first = f;
  }
  return first;
}

std::optional<Alarm> FairFlows::first_alarm() const {
  const auto &step = alarms_[static_cast<size_t>(Alarm::step)],
             &admission = alarms_[static_cast<size_t>(Alarm::admission)];
  if (!step && !admission) return std::nullopt;
  if (!step || !admission) return step ? Alarm::step : Alarm::admission;
  return std::pair(step->at, step->number) < std::pair(admission->at, admission->number) ? Alarm::step
                                                                                         : Alarm::admission;
}

// How long until something happens; negative: nothing does. Differences, as SimGrid's clock goes on by them.
double FairFlows::until_next() const {
  double until = -1;
  if (const auto alarm = first_alarm()) until = alarms_[static_cast<size_t>(*alarm)]->at - now_;
  if (ends_.empty()) return until;
  const double end = ends_[first_to_end()] - now_;
  return end >= 0 && end < never && (until < 0 || end < until) ? end : until;
}

void FairFlows::end_flows() {
  while (!ends_.empty()) {
    const uint32_t first = first_to_end();
    if (!(std::abs(ends_[first] - now_) < time_precision)) return;
    ends_[first] = never;
    ended_.push_back(first);
  }
}

bool FairFlows::ring(SharedClock& clock) {
  bool any = false;
  for (auto alarm = first_alarm(); alarm && now_ >= alarms_[static_cast<size_t>(*alarm)]->at; alarm = first_alarm()) {
    cancel(*alarm);
    clock.on_alarm(*alarm);
    any = true;
  }
  return any;
}

void FairFlows::tell_of_ends(SharedClock& clock) {
  for (const uint32_t flow : ended_) {
    clock.flow_ended(flows_[flow].activity);
    remove(flow);
  }
  ended_.clear();
}

bool FairFlows::run(SharedClock& clock) {
  while (true) {
    if (!share_anew()) return false;
    const double until = until_next();
    if (until < 0) return true;
    now_ += until;
    end_flows();
    for (bool rang = true; rang;) {
      rang = ring(clock);
      tell_of_ends(clock);
    }
  }
}

bool run_here(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  if (run_evenly(graph, cluster, timing)) return true;
  if (!graph.courses.empty()) return false;
  const double unit = time_unit(graph, cluster, timing);
  FairFlows flows(graph, cluster, unit);
  SharedClock clock(graph, cluster, timing, flows, unit);
  clock.begin();
  return flows.run(clock) && clock.unfinished() == 0;
}

}  // namespace nlsplit::inline sim
