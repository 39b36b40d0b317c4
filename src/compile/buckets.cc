// Of pass `schedule`: in how many buckets replicas reduce their gradients, and when they do what of it.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "compile/collective_costs.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

ExpandedCollective expanded(Collective collective, const CollectiveCosts& costs) {
  ExpandedCollective made;
  made.rounds = rounds_of(collective, costs.hosts, costs.grain);
  made.collective = std::move(collective);
  return made;
}

// Who gets which of a bucket's gradients, each whole: so that all have about as much as others, with what they have of
// the buckets before, `loads`.
std::vector<int64_t> shares_of(int64_t begin, std::span<const Completed> gradients, std::vector<int64_t>& loads) {
  const int64_t elements = gradients.back().end - begin;
  const auto mean =
      static_cast<double>(std::accumulate(loads.begin(), loads.end(), elements)) / static_cast<double>(loads.size());
  std::vector<double> ends;  // of what each should get, had gradients no borders
  double wanted = 0;
  for (const int64_t load : loads) ends.push_back(wanted += std::max(0.0, mean - static_cast<double>(load)));
  std::vector<int64_t> shares(loads.size(), 0);
  size_t member = 0;
  int64_t done = 0;
  for (const Completed& next : gradients) {
    const int64_t end = next.end - begin;
    const double middle = static_cast<double>(done + end) / 2 / static_cast<double>(elements) * wanted;
    while (member + 1 < shares.size() && middle >= ends[member]) ++member;
    shares[member] += end - done;
    loads[member] += end - done;
    done = end;
  }
  return shares;
}

struct Algorithms {
  CollectiveAlgorithm reduce, gather;
};

// Of so many buckets of about equal sizes, or fewer: of each the number of its last gradient.
std::vector<size_t> equal_buckets(std::span<const Completed> completed, int64_t count) {
  std::vector<size_t> last;
  int64_t begin = 0;
  for (size_t i = 0; i < completed.size(); ++i) {
    const int64_t left = count - static_cast<int64_t>(last.size());
    if (i + 1 < completed.size() && completed[i].end < begin + (completed.back().end - begin) / left) continue;
    last.push_back(i);
    begin = completed[i].end;
  }
  return last;
}

// Of buckets that are no larger than the largest gradient, which has to lie somewhere in any case: smaller ones would
// save no memory. Of each the number of its last gradient.
std::vector<size_t> least_buckets(std::span<const Completed> completed) {
  int64_t most = 0, begin = 0;
  for (size_t i = 0; i < completed.size(); ++i)
    most = std::max(most, completed[i].end - (i == 0 ? 0 : completed[i - 1].end));
  std::vector<size_t> last;
  for (size_t i = 0; i < completed.size(); ++i) {
    if (i + 1 < completed.size() && completed[i + 1].end - begin <= most) continue;
    last.push_back(i);
    begin = completed[i].end;
  }
  return last;
}

// The member that gets each bucket of one gradient, by bucket: the largest first, each to the member with the least.
// Others are shared out around them.
std::map<size_t, size_t> owners_of_single(std::span<const Completed> completed, std::span<const size_t> last,
                                          std::vector<int64_t>& loads) {
  std::vector<std::pair<int64_t, size_t>> singles;  // elements, bucket
  for (size_t b = 0; b < last.size(); ++b) {
    const size_t first = b == 0 ? 0 : last[b - 1] + 1;
    if (last[b] == first) singles.emplace_back(completed[first].end - (first == 0 ? 0 : completed[first - 1].end), b);
  }
  std::ranges::stable_sort(singles, std::greater(), &std::pair<int64_t, size_t>::first);
  std::map<size_t, size_t> owners;
  for (const auto& [elements, bucket] : singles) {
    const auto least = std::ranges::min_element(loads);
    *least += elements;
    owners[bucket] = static_cast<size_t>(least - loads.begin());
  }
  return owners;
}

std::vector<Bucket> cut(std::span<const Completed> completed, std::span<const size_t> last, const Reduction& reduction,
                        const Algorithms& algorithms, const CollectiveCosts& costs) {
  std::vector<Bucket> made;
  std::vector<int64_t> loads(reduction.group.size(), 0);
  std::map<size_t, size_t> owners;
  if (reduction.keeps_share) owners = owners_of_single(completed, last, loads);
  int64_t begin = 0;
  size_t first = 0;
  for (const size_t i : last) {
    const auto owner = owners.find(made.size());
    const Completed& next = completed[i];
    Bucket& bucket = made.emplace_back();
    bucket.begin = begin;
    bucket.completed_by = next.node;
    Collective reduce{CollectiveKind::all_reduce, algorithms.reduce, reduction.group, {next.end - begin}};
    if (reduction.sharded) {
      reduce.kind = CollectiveKind::reduce_scatter;
      if (owner == owners.end()) {
        reduce.elements = shares_of(begin, completed.subspan(first, i + 1 - first), loads);
      } else {
        reduce.elements.assign(loads.size(), 0);
        reduce.elements[owner->second] = next.end - begin;
      }
      if (!reduction.keeps_weights) {
        bucket.gather =
            expanded({CollectiveKind::all_gather, algorithms.gather, reduction.group, reduce.elements}, costs);
      }
    }
    bucket.reduce = expanded(std::move(reduce), costs);
    begin = next.end;
    first = i + 1;
  }
  return made;
}

// Turns as they come due while the slowest replica does its last backward pass: a bucket's first one when it is
// complete, each further one when the messages of the round before should be there. Messages share the network: those
// of a round begin when those before are sent.
struct Timeline {
  std::vector<ReductionTurn> turns;
  double finish = 0;  // seconds from the beginning of the backward pass
};

class Times {
 public:
  explicit Times(std::vector<std::vector<RoundSeconds>> rounds) : rounds_(std::move(rounds)) {}

  Timeline run(std::span<const BackwardTime> backward, const std::vector<Bucket>& buckets) {
    size_t bucket = 0;
    for (const BackwardTime& node : backward) {
      made_.finish += node.seconds;
      for (; bucket < buckets.size() && buckets[bucket].completed_by <= node.node; ++bucket)
        due_.emplace_back(made_.finish, bucket, 0);
      take_turns(node.node, made_.finish);
    }
    for (; bucket < buckets.size(); ++bucket) due_.emplace_back(made_.finish, bucket, 0);
    while (!due_.empty()) take_turns(ReductionTurn::at_the_end, std::get<0>(std::ranges::min(due_)));
    return std::move(made_);
  }

 private:
  void take_turns(size_t behind, double until) {
    while (!due_.empty()) {
      const auto next = std::ranges::min_element(due_);
      const auto [when, bucket, round] = *next;
      if (when > until) return;
      due_.erase(next);
      made_.turns.push_back({bucket, round, behind});
      const std::vector<RoundSeconds>& rounds = rounds_[bucket];
      made_.finish = std::max(made_.finish, when) + (round > 0 ? rounds[round - 1].sums : 0);
      if (round == rounds.size()) continue;
      const double there = std::max(network_free_, made_.finish) + rounds[round].messages;
      network_free_ = there - rounds[round].latency;
      due_.emplace_back(there, bucket, round + 1);
    }
  }

  std::vector<std::vector<RoundSeconds>> rounds_;        // [bucket][round]
  std::vector<std::tuple<double, size_t, size_t>> due_;  // when, bucket, round
  double network_free_ = 0;
  Timeline made_;
};

size_t pieces_of(const std::vector<Bucket>& buckets) {
  size_t pieces = 0;
  for (const Bucket& bucket : buckets) {
    for (const std::vector<Piece>& round : bucket.reduce.rounds) pieces += round.size();
  }
  return pieces;
}

struct Candidate {
  std::vector<Bucket> buckets;
  Timeline timeline;
};

// last: of each bucket the number of its last gradient.
Result<Candidate> candidate(const Lowering& lowering, std::span<const Completed> completed,
                            std::span<const BackwardTime> backward, RoundTimes& times, const Reduction& reduction,
                            std::span<const size_t> last) {
  const CollectiveCosts& costs = times.costs();
  const int64_t size = std::max<int64_t>(reduction.elements / static_cast<int64_t>(last.size()), 1);
  const auto members = static_cast<int64_t>(reduction.group.size());
  const auto algorithm = [&](CollectiveKind kind) -> Result<CollectiveAlgorithm> {
    if (lowering.native) return native_algorithm(kind, reduction.group.size(), bytes(size * costs.element_bytes));
    if (lowering.all_reduce) {  // or the ring, which all kinds have
      const auto known = algorithms_of(kind);
      return std::ranges::find(known, *lowering.all_reduce) != known.end() ? *lowering.all_reduce
                                                                           : CollectiveAlgorithm::ring;
    }
    Collective collective{kind, CollectiveAlgorithm::ring, reduction.group, {size}};
    if (!is_whole(kind)) collective.elements.assign(reduction.group.size(), (size + members - 1) / members);
    if (adds_up(kind)) return choose_algorithm(collective, times, lowering.exact);
    CollectiveCosts of_weights = costs;  // which travel as they are
    of_weights.element_bytes = 4;
    return choose_algorithm(collective, of_weights);
  };
  Algorithms algorithms{};
  ASSIGN_OR_RETURN(algorithms.reduce,
                   algorithm(reduction.sharded ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce));
  if (reduction.sharded) {
    ASSIGN_OR_RETURN(algorithms.gather, algorithm(CollectiveKind::all_gather));
  }
  Candidate made;
  made.buckets = cut(completed, last, reduction, algorithms, costs);
  std::vector<std::vector<RoundSeconds>> rounds;
  for (const Bucket& bucket : made.buckets) {
    rounds.emplace_back(bucket.reduce.rounds.size(), RoundSeconds{1});  // without costs, as each node
    if (lowering.costs == nullptr) continue;
    for (size_t r = 0; r < bucket.reduce.rounds.size(); ++r) {
      ASSIGN_OR_RETURN(rounds.back()[r], times.of(bucket.reduce.rounds[r]));
    }
  }
  made.timeline = Times(std::move(rounds)).run(backward, made.buckets);
  return made;
}

}  // namespace

Status choose_buckets(const Lowering& lowering, std::span<const Completed> completed,
                      std::span<const BackwardTime> backward, const CollectiveCosts& costs, Reduction& reduction) {
  constexpr int64_t most_buckets = 32;
  constexpr size_t most_pieces = 100'000;  // so that a Program of hundreds of replicas stays small
  RoundTimes times(costs);
  const auto made = [&](std::span<const size_t> last) {
    return candidate(lowering, completed, backward, times, reduction, last);
  };
  const bool for_memory = reduction.keeps_share && !lowering.buckets;
  ASSIGN_OR_RETURN(Candidate chosen, made(for_memory ? least_buckets(completed)
                                                     : equal_buckets(completed, lowering.buckets.value_or(1))));
  const bool for_time = lowering.costs != nullptr && !lowering.buckets && !for_memory;
  for (int64_t count = 2; for_time && count <= most_buckets; count *= 2) {
    if (pieces_of(chosen.buckets) * at(count) > most_pieces) break;
    ASSIGN_OR_RETURN(Candidate more, made(equal_buckets(completed, count)));
    // Each costs messages that no prediction counts in full: more of them must be worth it.
    if (more.timeline.finish * told_apart < chosen.timeline.finish) chosen = std::move(more);
  }
  reduction.buckets = std::move(chosen.buckets);
  reduction.turns = std::move(chosen.timeline.turns);
  for (Bucket& bucket : reduction.buckets) {
    bucket.reduce.of_members = rounds_of_members(bucket.reduce.rounds, costs.hosts.size());
    if (bucket.gather) bucket.gather->of_members = rounds_of_members(bucket.gather->rounds, costs.hosts.size());
  }
  return ok_status();
}

}  // namespace nlsplit::inline compiler
