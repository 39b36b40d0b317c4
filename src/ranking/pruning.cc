#include "ranking/pruning.h"

#include <algorithm>
#include <limits>

namespace nlsplit::inline ranking {
namespace {

constexpr double none_yet = std::numeric_limits<double>::infinity();

}  // namespace

PlanMetrics estimated_metrics(const ScoredPlan& plan) {
  return {plan.bound_seconds, plan.latency_seconds, plan.memory_bytes, plan.busiest_seconds};
}

PlanMetrics metrics_of(const Estimate& estimate) {
  return {estimate.makespan_s, estimate.latency_mean_s, static_cast<double>(estimate.largest_memory.value()),
          estimate.busiest_device_share * estimate.makespan_s};
}

Pruning::Pruning(size_t wanted, Objective objective, bool training)
    : wanted_(wanted), objective_(objective == Objective::throughput ? 0 : 1), training_(training) {
  for (Kind& kind : kinds_) {
    kind.share.fill(none_yet);
    kind.least.fill(none_yet);
  }
}

bool Pruning::worth(const ScoredPlan& plan, const std::string& schedule) const {
  const size_t which = kind(plan.plan);
  const Kind& of = kinds_[which];
  const bool is_split = which == inside || which == static_cast<size_t>(PlanKind::split);
  const size_t splits = training_ ? min_timed_inside : min_timed;  // scores are no less than estimates
  const size_t surely = which == inside ? min_timed_inside : is_split ? splits : min_timed_unsplit;
  if (of.noted < surely) return true;
  const Alike* alike = nullptr;
  if (training_ && which != inside) {
    const auto known = of.alike.find({plan.plan.micro_batches, schedule});
    if (known != of.alike.end() && known->second.noted >= enough_alike) alike = &known->second;
  }
  const auto expected = [&](size_t metric) { return this->expected(plan, alike, metric); };
  if (best_.size() < wanted_ || expected(objective_) <= best_.top()) return true;
  for (size_t r = 0; r < of.least.size(); ++r) {
    double least = of.least[r];
    if (is_split) {  // the best split may be one of either kind
      for (const size_t other : {inside, static_cast<size_t>(PlanKind::split)})
        least = std::min(least, kinds_[other].least[r]);
    }
    if (expected(r) * clearly_faster < least) return true;
  }
  return false;
}

// Of plans with stages split inside their layers no more than the estimate: how far above it they are differs much, by
// how evenly the stages before and behind are as fast. So does that of a step, until many are known.
double Pruning::expected(const ScoredPlan& plan, const Alike* alike, size_t metric) const {
  const size_t which = kind(plan.plan);
  const double share = alike != nullptr && metric != objective_ ? alike->share[metric] : kinds_[which].share[metric];
  const double cheap = estimated_metrics(plan)[metric];
  const bool few = training_ && metric == objective_ && kinds_[which].noted < min_timed;
  const bool no_more = which == inside || few;
  return cheap > 0 ? cheap * (no_more ? std::min(share, 1.0) : share) : 0;
}

double Pruning::least_score(const ScoredPlan& plan) const {
  return std::min(1.0, kinds_[kind(plan.plan)].share[objective_]) * estimated_metrics(plan)[objective_];
}

void Pruning::note(const ScoredPlan* found, double score, const PlanMetrics& exact, const Plan& plan) {
  best_.push(score);
  if (best_.size() > wanted_) best_.pop();
  Kind& of = kinds_[kind(plan)];
  for (size_t r = 0; r < exact.size(); ++r) of.least[r] = std::min(of.least[r], exact[r]);
  if (found == nullptr) return;
  const auto learn = [&, cheap = estimated_metrics(*found)](size_t& noted, PlanMetrics& share) {
    if (noted++ == 0) share.fill(none_yet);
    for (size_t r = 0; r < exact.size(); ++r) {
      if (cheap[r] > 0) share[r] = std::min(share[r], exact[r] / cheap[r]);
    }
  };
  learn(of.noted, of.share);
  if (!training_) return;
  Alike& alike = of.alike[{plan.micro_batches, plan.schedule}];
  learn(alike.noted, alike.share);
}

}  // namespace nlsplit::inline ranking
