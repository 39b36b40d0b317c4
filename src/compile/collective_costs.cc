#include "compile/collective_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.h"
#include "program/data_movement.h"

namespace nlsplit::inline compiler {
namespace {

// Of the busiest member: by the ranges that others add to.
double sum_seconds(const std::vector<Piece>& round, const CollectiveCosts& costs) {
  std::map<int, std::map<std::pair<int64_t, int64_t>, size_t>> operands;  // by member and range, without the own one
  for (const Piece& piece : round) {
    if (piece.adds) ++operands[piece.to][{piece.begin, piece.end}];
  }
  double slowest = 0;
  for (const auto& [member, ranges] : operands) {
    double seconds = 0;
    for (const auto& [range, count] : ranges) seconds += costs.sum(member, count + 1, range.second - range.first);
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

// Looked up once each.
class Routes {
 public:
  explicit Routes(const Cluster& cluster) : cluster_(cluster) {}
  Result<const Route*> between(HostId from, HostId to) {
    const auto [known, is_new] = routes_.try_emplace({from, to});
    if (is_new) {
      ASSIGN_OR_RETURN(known->second, find_route(cluster_, from, to));
    }
    return &known->second;
  }

 private:
  const Cluster& cluster_;
  std::map<std::pair<HostId, HostId>, Route> routes_;
};

Result<RoundSeconds> timed(const std::vector<Piece>& round, const CollectiveCosts& costs, Routes& routes) {
  const Cluster& cluster = costs.cluster;
  RoundSeconds seconds;
  std::map<size_t, double> busy;  // lane: seconds
  for (const Piece& piece : round) {
    if (piece.from == piece.to) continue;
    ASSIGN_OR_RETURN(const Route* route, routes.between(costs.hosts[at(piece.from)], costs.hosts[at(piece.to)]));
    const Bytes size = bytes(piece.count() * costs.element_bytes);
    const MessageCost& cost = size <= cluster.eager_limit ? route->eager : route->rendezvous;
    seconds.messages = std::max(seconds.messages, (cost.latency + size / cost.bandwidth).value());
    seconds.latency = std::max(seconds.latency, cost.latency.value());
    for (const Hop& hop : route->hops) {
      const Link& link = cluster.links[hop.link.index()];
      if (link.shared) busy[lane_of(cluster, hop)] += (size / link.bandwidth).value();
    }
  }
  for (const auto& [lane, time] : busy) seconds.messages = std::max(seconds.messages, seconds.latency + time);
  if (costs.sum) seconds.sums = sum_seconds(round, costs);
  return seconds;
}

Result<double> timed(const Rounds& rounds, const CollectiveCosts& costs, Routes& routes) {
  double seconds = 0;
  for (const std::vector<Piece>& round : rounds) {
    ASSIGN_OR_RETURN(const RoundSeconds of, timed(round, costs, routes));
    seconds += of.messages + of.sums;
  }
  return seconds;
}

}  // namespace

std::function<double(int, size_t, int64_t)> sums_by(const CostTable* costs, std::span<const DeviceId> devices) {
  // A sum without a cost is not chosen: nothing could predict the plan.
  constexpr double no_cost = std::numeric_limits<double>::infinity();
  std::map<std::tuple<DeviceId, size_t, int64_t>, double> known;
  return [=](int member, size_t operands, int64_t elements) mutable {
    if (costs == nullptr) return 0.0;
    const DeviceId device = devices[at(member)];
    const auto [sum, is_new] = known.try_emplace({device, operands, elements}, no_cost);
    if (!is_new) return sum->second;
    const auto cost = costs->cost(device, sum_desc(operands, {DType::f32, {elements}}));
    if (cost.ok()) sum->second = cost->time.value();
    return sum->second;
  };
}

CollectiveAlgorithm native_algorithm(CollectiveKind kind, size_t members, Bytes bytes) {
  constexpr size_t few = 4;
  constexpr Bytes small = nlsplit::bytes(64 << 10);
  switch (kind) {
    case CollectiveKind::all_reduce:
      return members < few || bytes < small ? CollectiveAlgorithm::tree : CollectiveAlgorithm::halving;
    case CollectiveKind::reduce_scatter:
      return CollectiveAlgorithm::tree;
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return CollectiveAlgorithm::direct;
    case CollectiveKind::broadcast:
      return members <= few ? CollectiveAlgorithm::direct : CollectiveAlgorithm::tree;
  }
  CHECK(false, "unknown collective");
}

Result<double> seconds_of(const Rounds& rounds, const CollectiveCosts& costs) {
  Routes routes(costs.cluster);
  return timed(rounds, costs, routes);
}

Result<std::vector<RoundSeconds>> seconds_of_rounds(const Rounds& rounds, const CollectiveCosts& costs) {
  Routes routes(costs.cluster);
  std::vector<RoundSeconds> seconds;
  for (const std::vector<Piece>& round : rounds) {
    ASSIGN_OR_RETURN(seconds.emplace_back(), timed(round, costs, routes));
  }
  return seconds;
}

Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, const CollectiveCosts& costs,
                                             bool in_order) {
  struct Candidate {
    CollectiveAlgorithm algorithm;
    double seconds;
    int64_t memory;
  };
  std::vector<Candidate> candidates;
  Routes routes(costs.cluster);
  double fastest = 0;
  for (const CollectiveAlgorithm algorithm : algorithms_of(collective.kind)) {
    if (in_order && !adds_in_order(algorithm)) continue;
    Collective done = collective;
    done.algorithm = algorithm;
    const Rounds rounds = rounds_of(done, costs.hosts);
    ASSIGN_OR_RETURN(const double seconds, timed(rounds, costs, routes));
    const std::vector<Rounds> of_members = rounds_of_members(rounds, costs.hosts.size());
    int64_t memory = 0;
    for (size_t m = 0; m < of_members.size(); ++m)
      memory = std::max(memory, received_elements(of_members[m], static_cast<int>(m)));
    fastest = candidates.empty() ? seconds : std::min(fastest, seconds);
    candidates.push_back({algorithm, seconds, memory});
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.seconds > fastest * told_apart; });
  return std::ranges::min_element(candidates, {}, &Candidate::memory)->algorithm;
}

}  // namespace nlsplit::inline compiler
