// Of pass `schedule`: in how many buckets replicas reduce their gradients, and when they do what of it.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "compile/collective_costs.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

// Buckets of about equal sizes, each behind the node that completes it.
struct Cut {
  std::vector<Bucket> buckets;
  std::vector<size_t> behind;  // [bucket]: node
};

Cut cut(std::span<const Completed> completed, int64_t elements, int64_t count, const Collective& collective,
        std::span<const HostId> hosts) {
  Cut made;
  int64_t begin = 0;
  for (const Completed& next : completed) {
    const int64_t left = count - static_cast<int64_t>(made.buckets.size());
    if (next.end < elements && next.end < begin + (elements - begin) / left) continue;
    Bucket& bucket = made.buckets.emplace_back();
    bucket.begin = begin;
    bucket.collective = collective;
    bucket.collective.elements = {next.end - begin};
    bucket.rounds = rounds_of(bucket.collective, hosts);
    made.behind.push_back(next.node);
    begin = next.end;
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

  Timeline run(std::span<const BackwardTime> backward, const std::vector<size_t>& behind) {
    size_t bucket = 0;
    for (const BackwardTime& node : backward) {
      made_.finish += node.seconds;
      for (; bucket < behind.size() && behind[bucket] <= node.node; ++bucket)
        due_.emplace_back(made_.finish, bucket, 0);
      take_turns(node.node, made_.finish);
    }
    for (; bucket < behind.size(); ++bucket) due_.emplace_back(made_.finish, bucket, 0);
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

size_t pieces_of(const Cut& cut) {
  size_t pieces = 0;
  for (const Bucket& bucket : cut.buckets) {
    for (const std::vector<Piece>& round : bucket.rounds) pieces += round.size();
  }
  return pieces;
}

struct Candidate {
  Cut cut;
  Timeline timeline;
};

// Of so many buckets, or fewer: a bucket ends where a gradient does.
Result<Candidate> candidate(const Lowering& lowering, std::span<const Completed> completed,
                            std::span<const BackwardTime> backward, const CollectiveCosts& costs,
                            const Reduction& reduction, int64_t count) {
  Collective collective;
  collective.group = reduction.group;
  collective.elements = {std::max<int64_t>(reduction.elements / count, 1)};
  if (lowering.all_reduce) {
    collective.algorithm = *lowering.all_reduce;
  } else {
    ASSIGN_OR_RETURN(collective.algorithm, choose_algorithm(collective, costs, lowering.exact));
  }
  Candidate made;
  made.cut = cut(completed, reduction.elements, count, collective, costs.hosts);
  std::vector<std::vector<RoundSeconds>> rounds;
  for (const Bucket& bucket : made.cut.buckets) {
    rounds.emplace_back(bucket.rounds.size(), RoundSeconds{1});  // without costs, as each node
    if (lowering.costs == nullptr) continue;
    ASSIGN_OR_RETURN(rounds.back(), seconds_of_rounds(bucket.rounds, costs));
  }
  made.timeline = Times(std::move(rounds)).run(backward, made.cut.behind);
  return made;
}

}  // namespace

Status choose_buckets(const Lowering& lowering, std::span<const Completed> completed,
                      std::span<const BackwardTime> backward, const CollectiveCosts& costs, Reduction& reduction) {
  constexpr int64_t most_buckets = 32;
  constexpr size_t most_pieces = 100'000;  // so that a Program of hundreds of replicas stays small
  const auto made = [&](int64_t count) { return candidate(lowering, completed, backward, costs, reduction, count); };
  ASSIGN_OR_RETURN(Candidate chosen, made(lowering.buckets.value_or(1)));
  for (int64_t count = 2; lowering.costs != nullptr && !lowering.buckets && count <= most_buckets; count *= 2) {
    if (pieces_of(chosen.cut) * at(count) > most_pieces) break;
    ASSIGN_OR_RETURN(Candidate more, made(count));
    // Each costs messages that no prediction counts in full: more of them must be worth it.
    if (more.timeline.finish * told_apart < chosen.timeline.finish) chosen = std::move(more);
  }
  reduction.buckets = std::move(chosen.cut.buckets);
  reduction.turns = std::move(chosen.timeline.turns);
  for (Bucket& bucket : reduction.buckets) bucket.of_members = rounds_of_members(bucket.rounds, costs.hosts.size());
  return ok_status();
}

}  // namespace nlsplit::inline compiler
