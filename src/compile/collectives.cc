#include "compile/collectives.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

// Some of the members, which take part in a step of an algorithm.
using Members = std::vector<int>;

int count_of(const Members& members) { return static_cast<int>(members.size()); }

struct Range {
  int64_t begin = 0, end = 0;
};

// Messages of no elements are left out.
void add(std::vector<Piece>& round, int from, int to, Range range, bool adds) {
  if (range.end > range.begin) round.push_back({from, to, range.begin, range.end, adds});
}

void add_ring(Rounds& rounds, const Members& members, int64_t elements) {
  const int n = count_of(members);
  const auto chunk = [&](int i) {
    const int64_t k = ((i % n) + n) % n;
    return Range{k * elements / n, (k + 1) * elements / n};
  };
  for (const bool adds : {true, false}) {
    for (int step = 0; step + 1 < n; ++step) {
      std::vector<Piece>& round = rounds.emplace_back();
      for (int p = 0; p < n; ++p)
        add(round, members[at(p)], members[at((p + 1) % n)], chunk(adds ? p - step : p + 1 - step), adds);
    }
  }
}

void add_direct(Rounds& rounds, const Members& members, int64_t elements) {
  const int n = count_of(members);
  for (const bool adds : {true, false}) {
    std::vector<Piece>& round = rounds.emplace_back();
    for (int p = 0; p < n; ++p) {
      for (int q = 0; q < n; ++q) {
        const int owner = adds ? q : p;
        const Range range{owner * elements / n, (owner + 1) * elements / n};
        if (p != q) add(round, members[at(p)], members[at(q)], range, adds);
      }
    }
  }
}

// Pairs 2^k apart; the sum ends at the first member. Or back from there.
void add_tree(Rounds& rounds, const Members& members, int64_t elements, bool back) {
  const int n = count_of(members);
  std::vector<int> distances;
  for (int distance = 1; distance < n; distance *= 2) distances.push_back(distance);
  if (back) std::ranges::reverse(distances);
  for (const int distance : distances) {
    std::vector<Piece>& round = rounds.emplace_back();
    for (int p = 0; p + distance < n; p += 2 * distance) {
      const int from = members[at(back ? p : p + distance)], to = members[at(back ? p + distance : p)];
      add(round, from, to, {0, elements}, !back);
    }
  }
}

// The members behind the largest power of two stand aside meanwhile.
template <class Inner>
void with_power_of_two(Rounds& rounds, const Members& members, int64_t elements, Inner inner) {
  const int n = count_of(members), power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const auto aside = [&](bool back) {
    if (n == power) return;
    std::vector<Piece>& round = rounds.emplace_back();
    for (int p = power; p < n; ++p) {
      const int outer = members[at(p)], partner = members[at(p - power)];
      add(round, back ? partner : outer, back ? outer : partner, {0, elements}, !back);
    }
  };
  aside(false);
  inner(power);
  aside(true);
}

void add_doubling(Rounds& rounds, const Members& members, int64_t elements) {
  with_power_of_two(rounds, members, elements, [&](int n) {
    for (int distance = 1; distance < n; distance *= 2) {
      std::vector<Piece>& round = rounds.emplace_back();
      for (int p = 0; p < n; ++p) add(round, members[at(p)], members[at(p ^ distance)], {0, elements}, true);
    }
  });
}

void add_halving(Rounds& rounds, const Members& members, int64_t elements) {
  with_power_of_two(rounds, members, elements, [&](int n) {
    std::vector<Range> own(at(n), {0, elements});  // what a member has the sum of so far
    std::vector<std::vector<Range>> before;        // [round]
    for (int distance = n / 2; distance >= 1; distance /= 2) {
      before.push_back(own);
      std::vector<Piece>& round = rounds.emplace_back();
      for (int p = 0; p < n; ++p) {
        const Range all = before.back()[at(p)];
        const int64_t middle = std::midpoint(all.begin, all.end);
        const Range low{all.begin, middle}, high{middle, all.end};
        const bool keeps_low = (p & distance) == 0;
        add(round, members[at(p)], members[at(p ^ distance)], keeps_low ? high : low, true);
        own[at(p)] = keeps_low ? low : high;
      }
    }
    for (int distance = 1; distance < n; distance *= 2) {
      std::vector<Piece>& round = rounds.emplace_back();
      for (int p = 0; p < n; ++p) add(round, members[at(p)], members[at(p ^ distance)], own[at(p)], false);
      own = before.back();
      before.pop_back();
    }
  });
}

// Of several groups at once: their k-th rounds together.
Rounds side_by_side(const std::vector<Rounds>& groups) {
  Rounds rounds;
  for (const Rounds& group : groups) {
    if (rounds.size() < group.size()) rounds.resize(group.size());
    for (size_t r = 0; r < group.size(); ++r) rounds[r].insert(rounds[r].end(), group[r].begin(), group[r].end());
  }
  return rounds;
}

void add_two_level(Rounds& rounds, std::span<const HostId> hosts, int64_t elements) {
  std::map<HostId, Members> on_host;
  Members first;
  for (size_t m = 0; m < hosts.size(); ++m) {
    Members& here = on_host[hosts[m]];
    if (here.empty()) first.push_back(static_cast<int>(m));
    here.push_back(static_cast<int>(m));
  }
  const auto trees = [&](bool back) {
    std::vector<Rounds> groups;
    for (const auto& [host, members] : on_host) add_tree(groups.emplace_back(), members, elements, back);
    for (std::vector<Piece>& round : side_by_side(groups)) rounds.push_back(std::move(round));
  };
  trees(false);
  add_ring(rounds, first, elements);
  trees(true);
}

}  // namespace

Rounds rounds_of(CollectiveAlgorithm algorithm, std::span<const HostId> hosts, int64_t elements) {
  Members all(hosts.size());
  std::iota(all.begin(), all.end(), 0);
  Rounds rounds;
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      add_ring(rounds, all, elements);
      break;
    case CollectiveAlgorithm::halving:
      add_halving(rounds, all, elements);
      break;
    case CollectiveAlgorithm::doubling:
      add_doubling(rounds, all, elements);
      break;
    case CollectiveAlgorithm::direct:
      add_direct(rounds, all, elements);
      break;
    case CollectiveAlgorithm::tree:
      add_tree(rounds, all, elements, false);
      add_tree(rounds, all, elements, true);
      break;
    case CollectiveAlgorithm::two_level:
      add_two_level(rounds, hosts, elements);
      break;
  }
  std::erase_if(rounds, [](const std::vector<Piece>& round) { return round.empty(); });
  return rounds;
}

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

}  // namespace

Result<double> seconds_of(const Rounds& rounds, const CollectiveCosts& costs) {
  const Cluster& cluster = costs.cluster;
  std::map<std::pair<HostId, HostId>, Route> routes;
  double seconds = 0;
  for (const std::vector<Piece>& round : rounds) {
    double slowest = 0, latency = 0;
    std::map<size_t, double> busy;  // lane: seconds
    for (const Piece& piece : round) {
      const std::pair ends(costs.hosts[at(piece.from)], costs.hosts[at(piece.to)]);
      auto known = routes.find(ends);
      if (known == routes.end()) {
        ASSIGN_OR_RETURN(Route route, find_route(cluster, ends.first, ends.second));
        known = routes.emplace(ends, std::move(route)).first;
      }
      const Route& route = known->second;
      const Bytes size = bytes((piece.end - piece.begin) * costs.element_bytes);
      const MessageCost& cost = size <= cluster.eager_limit ? route.eager : route.rendezvous;
      slowest = std::max(slowest, (cost.latency + size / cost.bandwidth).value());
      latency = std::max(latency, cost.latency.value());
      for (const Hop& hop : route.hops) {
        const Link& link = cluster.links[hop.link.index()];
        if (link.shared) busy[lane_of(cluster, hop)] += (size / link.bandwidth).value();
      }
    }
    for (const auto& [lane, time] : busy) slowest = std::max(slowest, latency + time);
    seconds += slowest + (costs.sum ? sum_seconds(round, costs) : 0);
  }
  return seconds;
}

int64_t received_elements(const Rounds& rounds, int member) {
  int64_t most = 0;
  for (const std::vector<Piece>& round : rounds) {
    int64_t count = 0;
    for (const Piece& piece : round) {
      if (piece.to == member && piece.adds) count += piece.end - piece.begin;
    }
    most = std::max(most, count);
  }
  return most;
}

Result<CollectiveAlgorithm> choose_algorithm(int64_t elements, const CollectiveCosts& costs) {
  constexpr double told_apart = 1.015;  // the median error of predictions is 1.5 % (docs/accuracy.md)
  struct Candidate {
    CollectiveAlgorithm algorithm;
    double seconds;
    int64_t memory;
  };
  std::vector<Candidate> candidates;
  double fastest = 0;
  for (const CollectiveAlgorithm algorithm : all_algorithms()) {
    const Rounds rounds = rounds_of(algorithm, costs.hosts, elements);
    ASSIGN_OR_RETURN(const double seconds, seconds_of(rounds, costs));
    int64_t memory = 0;
    for (size_t m = 0; m < costs.hosts.size(); ++m)
      memory = std::max(memory, received_elements(rounds, static_cast<int>(m)));
    fastest = candidates.empty() ? seconds : std::min(fastest, seconds);
    candidates.push_back({algorithm, seconds, memory});
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.seconds > fastest * told_apart; });
  return std::ranges::min_element(candidates, {}, &Candidate::memory)->algorithm;
}

std::vector<Instr> instructions_of(const Rounds& rounds, std::span<const int> group, int member, const Operand& value,
                                   BufferId received, int tag) {
  std::vector<Instr> instrs;
  const auto part = [&](Range range) {
    return Operand{value.buffer, value.begin + range.begin, value.begin + range.end};
  };
  const auto transfer = [&](Opcode opcode, const Operand& what, int peer) {
    Instr& instr = instrs.emplace_back();
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back(what);
    instr.peer = group[at(peer)];
    instr.tag = tag;
  };
  struct Term {
    int member;
    Operand operand;
  };
  for (const std::vector<Piece>& round : rounds) {
    for (const Piece& piece : round) {
      if (piece.from == member) transfer(Opcode::send, part({piece.begin, piece.end}), piece.to);
    }
    std::map<std::pair<int64_t, int64_t>, std::vector<Term>> sums;  // by what is added to
    int64_t next = 0;
    for (const Piece& piece : round) {
      if (piece.to != member) continue;
      const int64_t count = piece.end - piece.begin;
      if (!piece.adds) {
        transfer(Opcode::recv, part({piece.begin, piece.end}), piece.from);
        continue;
      }
      const Operand here{received, next, next + count};
      next += count;
      transfer(Opcode::recv, here, piece.from);
      sums[{piece.begin, piece.end}].push_back({piece.from, here});
    }
    for (auto& [range, terms] : sums) {
      const Operand sum = part({range.first, range.second});
      terms.push_back({member, sum});
      std::ranges::sort(terms, {}, &Term::member);
      Instr& instr = instrs.emplace_back();
      instr.opcode = Opcode::reduce;
      for (const Term& term : terms) instr.reads.push_back(term.operand);
      instr.writes = {sum};
    }
  }
  return instrs;
}

}  // namespace nlsplit::inline compiler
