#include "ranking/pruning.h"

#include <algorithm>
#include <limits>

namespace nlsplit::inline ranking {
namespace {

constexpr double none_yet = std::numeric_limits<double>::infinity();

}  // namespace

Respects estimated(const ScoredPlan& plan) {
  return {plan.bound_seconds, plan.latency_seconds, plan.memory_bytes, plan.busiest_seconds};
}

Respects respects_of(const Estimate& estimate) {
  return {estimate.makespan_s, estimate.latency_mean_s, static_cast<double>(estimate.largest_memory.value()),
          estimate.busiest_device_share * estimate.makespan_s};
}

Pruning::Pruning(size_t wanted, Objective objective)
    : wanted_(wanted), objective_(objective == Objective::throughput ? 0 : 1) {
  for (Kind& kind : kinds_) {
    kind.share.fill(none_yet);
    kind.least.fill(none_yet);
  }
}

bool Pruning::worth(const ScoredPlan& plan) const {
  const PlanKind which = kind_of(plan.plan);
  const Kind& of = kind(which);
  if (of.noted < (which == PlanKind::split ? surely_timed : surely_timed_yardsticks)) return true;
  const Respects cheap = estimated(plan);
  const auto expected = [&](size_t respect) { return cheap[respect] > 0 ? cheap[respect] * of.share[respect] : 0; };
  if (best_.size() < wanted_ || expected(objective_) <= best_.top()) return true;
  for (size_t r = 0; r < cheap.size(); ++r) {
    if (expected(r) * clearly_faster < of.least[r]) return true;
  }
  return false;
}

void Pruning::note(const ScoredPlan* found, double score, const Respects& exact, PlanKind which) {
  best_.push(score);
  if (best_.size() > wanted_) best_.pop();
  Kind& of = kind(which);
  for (size_t r = 0; r < exact.size(); ++r) of.least[r] = std::min(of.least[r], exact[r]);
  if (found == nullptr) return;
  ++of.noted;
  const Respects cheap = estimated(*found);
  for (size_t r = 0; r < exact.size(); ++r) {
    if (cheap[r] > 0) of.share[r] = std::min(of.share[r], exact[r] / cheap[r]);
  }
}

}  // namespace nlsplit::inline ranking
