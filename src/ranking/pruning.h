// Which of search's candidates to lower and time: lowering a network of thousands of nodes takes milliseconds, and most
// candidates cannot be among the best.
//
//   Pruning pruning(wanted, Objective::throughput);
//   for (…) if (pruning.worth(scored)) { …; pruning.note(&scored, score, metrics_of(estimate), plan); }
//
// The search has cheap estimates of every plan: a lower bound of its time, the time of one micro-batch, the computing
// time of its busiest device, and the bytes of a stage. The lowest ratio of exact to estimated figures is nearly the
// same for all plans of a ranking (links that overlap, messages that leave early). Pruning learns this ratio from the
// timed plans of each kind. It skips plans whose corrected estimates are neither among the best by the objective nor
// the best of their kind by another metric. So the table has the order of all candidates, unless a skipped plan's ratio
// is lower than that of every timed plan.
#pragma once

#include <array>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "partition/search.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// What the verdict compares: seconds of a batch, of a micro-batch, bytes of the largest device, computing seconds of
// the busiest device.
using PlanMetrics = std::array<double, 4>;
PlanMetrics metrics_of(const Estimate& estimate);
PlanMetrics estimated_metrics(const ScoredPlan& plan);  // what search says of them

class Pruning {
 public:
  // How many plans are timed before any is skipped: of all; of plans that are not splits, whose estimates are closer;
  // of plans with stages split inside their layers, which take long to lower.
  static constexpr size_t min_timed = 100, min_timed_unsplit = 3, min_timed_inside = 12;
  static constexpr size_t enough_alike = 3;  // of one schedule and micro-batch count, to learn from

  // wanted: how many of the best by the objective must not be missed. training: how many micro-batches are under way
  // at a time depends on the schedule and on how many there are. So does how far estimates of latency and memory are
  // off, which are of one of them.
  Pruning(size_t wanted, Objective objective, bool training = false);

  bool worth(const ScoredPlan& plan, const std::string& schedule = "") const;
  // A lower bound of the plan's score, estimated from the plans noted so far.
  double least_score(const ScoredPlan& plan) const;

  // A plan that was lowered and fits: `score` is what the best are chosen by, no less than the objective's metric, and
  // in training (without splits inside layers) no less than the estimate.
  // found: as search found it; nullptr: it was not found by search.
  void note(const ScoredPlan* found, double score, const PlanMetrics& exact, const Plan& plan);

 private:
  struct Alike {
    size_t noted = 0;   // that search found
    PlanMetrics share;  // lowest exact / estimated
  };
  struct Kind {
    size_t noted = 0;
    PlanMetrics share, least;                            // least: lowest of all
    std::map<std::pair<int, std::string>, Alike> alike;  // in training: by micro-batches and schedule
  };
  // Those with stages split inside their layers are a kind of their own: their estimates are less near.
  static constexpr size_t inside = plan_kind_count;
  static size_t kind(const Plan& plan) { return has_splits(plan) ? inside : static_cast<size_t>(kind_of(plan)); }

  // alike: nullptr: it is not training.
  double expected(const ScoredPlan& plan, const Alike* alike, size_t metric) const;

  size_t wanted_, objective_;  // objective_: index into PlanMetrics
  bool training_;
  std::priority_queue<double> best_;  // the `wanted_` lowest scores
  std::array<Kind, plan_kind_count + 1> kinds_;
};

}  // namespace nlsplit::inline ranking
