#include "compile/collective_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.h"
#include "program/data_movement.h"

namespace nlsplit::inline compiler {
namespace {

// Of the busiest member: by the ranges that others add to.
double sum_seconds(const std::vector<Piece>& round, const CollectiveCosts& costs) {
  std::vector<std::tuple<int, int64_t, int64_t>> added;  // member, range
  for (const Piece& piece : round) {
    if (piece.adds) added.emplace_back(piece.to, piece.begin, piece.end);
  }
  std::ranges::sort(added);
  double slowest = 0, seconds = 0;
  int of = -1;  // member
  for (auto begin = added.begin(); begin != added.end();) {
    const auto [member, first, last] = *begin;
    const auto end = std::find_if(begin, added.end(), [&](const auto& other) { return other != *begin; });
    if (std::exchange(of, member) != member) seconds = 0;
    seconds += costs.sum(member, static_cast<size_t>(end - begin) + 1, last - first);  // and the own operand
    slowest = std::max(slowest, seconds);
    begin = end;
  }
  return slowest;
}

}  // namespace

RoundTimes::RoundTimes(const CollectiveCosts& costs)
    : costs_(costs), ways_(costs.hosts.size() * costs.hosts.size()), busy_(2 * costs.cluster.links.size(), 0) {}

Result<const RoundTimes::Way*> RoundTimes::between(int from, int to) {
  std::optional<Way>& way = ways_[at(from) * costs_.hosts.size() + at(to)];
  if (way) return &*way;
  const Cluster& cluster = costs_.cluster;
  ASSIGN_OR_RETURN(const Route route, find_route(cluster, costs_.hosts[at(from)], costs_.hosts[at(to)]));
  way.emplace();
  way->eager = route.eager;
  way->rendezvous = route.rendezvous;
  for (const Hop& hop : route.hops) {
    const Link& link = cluster.links[hop.link.index()];
    if (link.shared) way->lanes.emplace_back(lane_of(cluster, hop), link.bandwidth);
  }
  return &*way;
}

Result<RoundSeconds> RoundTimes::of(const std::vector<Piece>& round) {
  RoundSeconds seconds;
  for (const Piece& piece : round) {
    if (piece.from == piece.to) continue;
    ASSIGN_OR_RETURN(const Way* way, between(piece.from, piece.to));
    const Bytes size = bytes(piece.count() * costs_.element_bytes);
    const MessageCost& cost = size <= costs_.cluster.eager_limit ? way->eager : way->rendezvous;
    seconds.messages = std::max(seconds.messages, (cost.latency + size / cost.bandwidth).value());
    seconds.latency = std::max(seconds.latency, cost.latency.value());
    for (const auto& [lane, bandwidth] : way->lanes) {
      if (busy_[lane] == 0) used_.push_back(lane);
      busy_[lane] += (size / bandwidth).value();
    }
  }
  for (const size_t lane : used_)
    seconds.messages = std::max(seconds.messages, seconds.latency + std::exchange(busy_[lane], 0));
  used_.clear();
  if (costs_.sum) seconds.sums = sum_seconds(round, costs_);
  return seconds;
}

Result<double> RoundTimes::of_all(const Rounds& rounds) {
  double seconds = 0;
  for (const std::vector<Piece>& round : rounds) {
    ASSIGN_OR_RETURN(const RoundSeconds one, of(round));
    seconds += one.messages + one.sums;
  }
  return seconds;
}

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
  return RoundTimes(costs).of_all(rounds);
}

Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, const CollectiveCosts& costs,
                                             bool in_order) {
  RoundTimes times(costs);
  return choose_algorithm(collective, times, in_order);
}

Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, RoundTimes& times, bool in_order) {
  struct Candidate {
    CollectiveAlgorithm algorithm;
    double seconds;
    int64_t memory;
  };
  std::vector<Candidate> candidates;
  const std::span<const HostId> hosts = times.costs().hosts;
  double fastest = 0;
  for (const CollectiveAlgorithm algorithm : algorithms_of(collective.kind)) {
    if (in_order && !adds_in_order(algorithm)) continue;
    Collective done = collective;
    done.algorithm = algorithm;
    const Rounds rounds = rounds_of(done, hosts, times.costs().grain);
    ASSIGN_OR_RETURN(const double seconds, times.of_all(rounds));
    const int64_t memory = std::ranges::max(received_by_members(rounds, hosts.size()));
    fastest = candidates.empty() ? seconds : std::min(fastest, seconds);
    candidates.push_back({algorithm, seconds, memory});
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.seconds > fastest * told_apart; });
  return std::ranges::min_element(candidates, {}, &Candidate::memory)->algorithm;
}

}  // namespace nlsplit::inline compiler
