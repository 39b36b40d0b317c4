#include "sim/simgrid/even_flows.h"

#include <algorithm>

namespace nlsplit::inline sim {

constexpr double never = std::numeric_limits<double>::infinity();

EvenFlows::EvenFlows(const TimedGraph& graph, const Cluster& cluster)
    : graph_(graph),
      bandwidth_(cluster.links.size() * 2),
      count_(cluster.links.size() * 2, 0),
      joined_(cluster.links.size() * 2),
      least_(cluster.links.size() * 2) {
  for (const Route& route : graph.routes) {
    std::vector<uint32_t>& lanes = lanes_.emplace_back();
    double& alone = alone_.emplace_back(never);
    for (const Hop& hop : route.hops) {
      const Link& link = cluster.links[hop.link.index()];
      const auto lane = static_cast<uint32_t>(lane_of(cluster, hop));
      bandwidth_[lane] = link.bandwidth.value();
      if (link.shared)
        lanes.push_back(lane);
      else
        alone = std::min(alone, link.bandwidth.value());
    }
    std::vector<uint32_t> once = lanes;
    std::ranges::sort(once);
    if (std::ranges::adjacent_find(once) != once.end()) lanes.clear();  // it takes two shares of a lane
  }
}

bool EvenFlows::begin(double now, const std::vector<Rest>& joining) {
  for (Flow& flow : flows_) flow.rest = std::max(0.0, flow.rest - flow.rate * (now - since_));
  for (const auto& [activity, rest] : joining) flows_.push_back({activity, rest, 0, never});
  since_ = now;
  next_ = never;
  has_ended_ = false;
  count_flows();
  const bool even = set_rates();
  for (const uint32_t lane : used_) count_[lane] = 0;
  used_.clear();
  if (!even) return false;
  for (Flow& flow : flows_) {
    flow.end = now + flow.rest / flow.rate;
    next_ = std::min(next_, flow.end);
  }
  return true;
}

uint32_t EvenFlows::first_of(uint32_t lane) {
  while (joined_[lane] != lane) lane = joined_[lane] = joined_[joined_[lane]];
  return lane;
}

void EvenFlows::count_flows() {
  for (const Flow& flow : flows_) {
    const std::vector<uint32_t>& lanes = lanes_of(flow);
    for (const uint32_t lane : lanes) {
      if (count_[lane]++ > 0) continue;
      used_.push_back(lane);
      joined_[lane] = lane;
      least_[lane] = never;
    }
    for (const uint32_t lane : lanes) joined_[first_of(lane)] = first_of(lanes[0]);
  }
}

bool EvenFlows::set_rates() {
  for (const uint32_t lane : used_) {
    double& least = least_[first_of(lane)];
    least = std::min(least, bandwidth_[lane] / count_[lane]);
  }
  for (Flow& flow : flows_) {
    const std::vector<uint32_t>& lanes = lanes_of(flow);
    if (lanes.empty()) return false;
    flow.rate = least_[first_of(lanes[0])];
    if (!(flow.rate > 0)) return false;
    const auto is_narrowest = [&](uint32_t lane) { return bandwidth_[lane] / count_[lane] == flow.rate; };
    if (std::ranges::none_of(lanes, is_narrowest)) return false;
    if (alone_[static_cast<size_t>(graph_.activities[flow.activity].route)] < flow.rate) return false;
  }
  return true;
}

void EvenFlows::give_up(std::vector<Rest>& rests) {
  for (const Flow& flow : flows_) rests.emplace_back(flow.activity, flow.rest);
  flows_.clear();
  next_ = never;
}

void EvenFlows::take_ended(std::vector<uint32_t>& ended) {
  const auto over = [this](const Flow& flow) { return flow.end <= next_; };
  for (const Flow& flow : flows_) {
    if (over(flow)) ended.push_back(flow.activity);
  }
  std::erase_if(flows_, over);
  next_ = never;
  for (const Flow& flow : flows_) next_ = std::min(next_, flow.end);
  has_ended_ = true;
}

}  // namespace nlsplit::inline sim
