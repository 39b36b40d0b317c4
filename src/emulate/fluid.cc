#include "emulate/fluid.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace nlsplit::inline emulation {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace

Fluid::Fluid(std::vector<double> rates) : rates_(std::move(rates)) {}

void Fluid::offer(double now, uint64_t flow_key, const FluidRoute& route, double bytes, uint32_t packet) {
  if (active_.empty()) clock_ = now;
  for (Flow* flow : active_) flow->left -= flow->rate * (now - clock_);
  clock_ = now;
  Flow& flow = flows_[flow_key];
  flow.queue.emplace_back(bytes, packet);
  if (flow.queue.size() > 1) return;
  flow.route = &route;
  flow.left = bytes;
  active_.push_back(&flow);
  share();
}

void Fluid::advance(double now, std::vector<FluidDelivery>& delivered) {
  while (!active_.empty()) {
    size_t first = 0;
    double soonest = never;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (const double at = sent(*active_[i]); at < soonest) {
        soonest = at;
        first = i;
      }
    }
    if (soonest > now) return;  // the clock stays: fewer roundings
    for (Flow* flow : active_) flow->left -= flow->rate * (soonest - clock_);
    clock_ = soonest;
    Flow& flow = *active_[first];
    delivered.push_back({flow.queue.front().second, soonest + flow.route->latency});
    flow.queue.pop_front();
    if (!flow.queue.empty()) {
      flow.left = flow.queue.front().first;
      continue;
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(first));
    share();
  }
}

double Fluid::sent(const Flow& flow) const { return clock_ + std::max(flow.left, 0.0) / flow.rate; }

double Fluid::next_due(size_t to) const {
  double soonest = never;
  for (const Flow* flow : active_) {
    if (flow->route->to == to) soonest = std::min(soonest, sent(*flow) + flow->route->latency);
  }
  return soonest;
}

// Progressive filling: the link with the least for each of its flows fixes their rates, and they leave the game.
void Fluid::share() {
  room_ = rates_;
  users_.assign(rates_.size(), 0);
  for (Flow* flow : active_) {
    flow->rate = -1;
    for (const int link : flow->route->links) ++users_[static_cast<size_t>(link)];
  }
  for (size_t fixed = 0; fixed < active_.size();) {
    size_t tightest = rates_.size();
    double least = never;
    for (size_t link = 0; link < rates_.size(); ++link) {
      if (users_[link] == 0) continue;
      const double each = room_[link] / users_[link];
      if (each < least) {
        least = each;
        tightest = link;
      }
    }
    for (Flow* flow : active_) {
      const std::vector<int>& links = flow->route->links;
      if (flow->rate >= 0) continue;
      if (tightest < rates_.size() && std::find(links.begin(), links.end(), static_cast<int>(tightest)) == links.end())
        continue;
      flow->rate = least;
      ++fixed;
      for (const int link : links) {
        room_[static_cast<size_t>(link)] = std::max(0.0, room_[static_cast<size_t>(link)] - least);
        --users_[static_cast<size_t>(link)];
      }
    }
  }
}

}  // namespace nlsplit::inline emulation
