#include "cost/pair_classes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace nlsplit::inline cost {
namespace {

using PairKey = std::vector<double>;

// [device]: the first one that computes alike.
std::vector<size_t> kinds_of_devices(const Cluster& cluster, const std::vector<CostSourcePtr>& costs) {
  const auto alike = [&](size_t d, size_t e) {
    const Device &x = cluster.devices[d], &y = cluster.devices[e];
    return x.kind == y.kind && x.level == y.level && x.cores == y.cores && x.slowdown == y.slowdown &&
           costs[d]->same_as(*costs[e]);
  };
  std::vector<size_t> kinds;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    size_t first = d;
    for (size_t e = 0; e < d && first == d; ++e)
      if (kinds[e] == e && alike(d, e)) first = e;
    kinds.push_back(first);
  }
  return kinds;
}

class PairKeys {
 public:
  PairKeys(const Cluster& cluster, const std::vector<CostSourcePtr>& costs) : cluster_(cluster) {
    const std::vector<size_t> kinds = kinds_of_devices(cluster, costs);
    std::vector<std::vector<size_t>> devices(cluster.hosts.size());  // their kinds
    machine_.resize(cluster.hosts.size());
    for (size_t d = 0; d < kinds.size(); ++d) {
      const size_t host = cluster.devices[d].host.index();
      devices[host].push_back(kinds[d]);
      machine_[host] = cluster.devices[d].machine;
    }
    std::map<std::pair<std::vector<size_t>, std::vector<size_t>>, size_t> known;
    for (size_t host = 0; host < devices.size(); ++host) {
      // The devices of the host around a device with a bus move its messages.
      const size_t around = outer_of(HostId(host)).index();
      const std::vector<size_t> none;
      kind_.push_back(
          known.try_emplace({devices[host], around == host ? none : devices[around]}, known.size()).first->second);
    }
  }

  struct BothKeys {
    PairKey as_it_is, turned;
  };
  Result<BothKeys> of(const HostPair& pair) const {
    auto there = find_path(cluster_, pair.a, pair.b), back = find_path(cluster_, pair.b, pair.a);
    // Devices of one host may exchange messages without a link that says how: only their kinds count then.
    for (Result<Route>* way : {&there, &back}) {
      if (way->ok()) continue;
      if (pair.a != pair.b) return way->error();
      *way = Route{};
    }
    return BothKeys{key(pair.a, pair.b, *there, *back), key(pair.b, pair.a, *back, *there)};
  }

 private:
  HostId outer_of(HostId host) const {
    const HostId inside = cluster_.hosts[host.index()].inside;
    return inside.valid() ? inside : host;
  }

  PairKey key(HostId a, HostId b, const Route& there, const Route& back) const {
    const std::string& machine = machine_[a.index()];
    const bool one_host = outer_of(a) == outer_of(b);
    const bool one_machine = one_host || (!machine.empty() && machine == machine_[b.index()]);
    PairKey key = {static_cast<double>(kind_[a.index()]), static_cast<double>(kind_[b.index()]), one_host ? 1.0 : 0.0,
                   one_machine ? 1.0 : 0.0};
    std::vector<size_t> lanes;
    append(key, there, lanes);
    append(key, back, lanes);
    return key;
  }

  // lanes: of the hops so far. Which of them a hop shares is what duplex and common channels come to.
  void append(PairKey& key, const Route& route, std::vector<size_t>& lanes) const {
    constexpr double picosecond = 1e-12;  // sums of the same latencies in another order differ in their last bits
    key.push_back(static_cast<double>(route.hops.size()));
    key.push_back(std::round(route.eager.latency.value() / picosecond));
    for (const Hop& hop : route.hops) {
      const Link& link = cluster_.links[hop.link.index()];
      const auto lane = std::ranges::find(lanes, lane_of(cluster_, hop));
      key.push_back(static_cast<double>(lane - lanes.begin()));
      if (lane == lanes.end()) lanes.push_back(lane_of(cluster_, hop));
      const HostId next = hop.forward ? link.b : link.a;
      const bool to_switch = next.valid() && cluster_.hosts[next.index()].is_switch;
      key.insert(key.end(), {link.bandwidth.value(), link.latency.value(), link.full_duplex ? 1.0 : 0.0,
                             link.shared ? 1.0 : 0.0, to_switch ? 1.0 : 0.0});
    }
  }

  const Cluster& cluster_;
  std::vector<size_t> kind_;          // [host]: of what stands there, as a number
  std::vector<std::string> machine_;  // [host]: that its devices share with others; empty: its own
};

}  // namespace

Result<std::vector<PairClass>> pair_classes(const Cluster& cluster, const std::vector<CostSourcePtr>& costs,
                                            std::span<const HostPair> pairs) {
  CHECK(costs.size() == cluster.devices.size(), "costs are one a device");
  const PairKeys keys(cluster, costs);
  std::map<PairKey, size_t> known;
  std::vector<PairClass> classes;
  for (const HostPair& pair : pairs) {
    ASSIGN_OR_RETURN(const PairKeys::BothKeys both, keys.of(pair));
    const bool turn = both.turned < both.as_it_is;
    const auto [found, is_new] = known.try_emplace(turn ? both.turned : both.as_it_is, classes.size());
    if (is_new) classes.push_back({{}, both.turned == both.as_it_is});
    classes[found->second].pairs.push_back(turn ? HostPair{pair.b, pair.a} : pair);
  }
  return classes;
}

std::vector<std::vector<size_t>> spread_over_hosts(std::span<const PairClass> classes, size_t most) {
  std::map<HostId, int> uses;  // in pairs that are chosen
  const auto note = [&](const HostPair& pair) {
    ++uses[pair.a];
    ++uses[pair.b];
  };
  std::vector<std::vector<size_t>> chosen;
  for (const PairClass& one : classes) {
    const size_t all = one.pairs.size(), count = std::min(most, all);
    std::vector<bool> taken(all, count == all);
    for (size_t i = 0; i < count && count < all; ++i) {
      const size_t place = (2 * i + 1) * all / (2 * count);
      const auto worth = [&](size_t p) {
        const int a = uses[one.pairs[p].a], b = uses[one.pairs[p].b];
        return std::tuple(std::max(a, b), a + b, std::max(p, place) - std::min(p, place), p);
      };
      size_t best = all;
      for (size_t p = 0; p < all; ++p)
        if (!taken[p] && (best == all || worth(p) < worth(best))) best = p;
      taken[best] = true;
      note(one.pairs[best]);
    }
    std::vector<size_t>& picked = chosen.emplace_back();
    for (size_t p = 0; p < all; ++p) {
      if (!taken[p]) continue;
      picked.push_back(p);
      if (count == all) note(one.pairs[p]);
    }
  }
  return chosen;
}

}  // namespace nlsplit::inline cost
