#include "ranking/pruning.h"

#include <algorithm>
#include <limits>

namespace nlsplit {
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
  share_.fill(none_yet);
  least_.fill(none_yet);
}

bool Pruning::worth(const ScoredPlan& plan) const {
  if (noted_ < surely_timed || best_.size() < wanted_) return true;
  const Respects cheap = estimated(plan);
  const auto expected = [&](size_t respect) { return cheap[respect] > 0 ? cheap[respect] * share_[respect] : 0; };
  if (expected(objective_) <= best_.top()) return true;
  if (plan.plan.stages.size() < 2) return false;
  for (size_t r = 0; r < cheap.size(); ++r) {
    if (expected(r) * clearly_faster < least_[r]) return true;
  }
  return false;
}

void Pruning::note(const ScoredPlan* found, double score, const Respects& exact, bool split) {
  best_.push(score);
  if (best_.size() > wanted_) best_.pop();
  for (size_t r = 0; split && r < exact.size(); ++r) least_[r] = std::min(least_[r], exact[r]);
  if (found == nullptr) return;
  ++noted_;
  const Respects cheap = estimated(*found);
  for (size_t r = 0; r < exact.size(); ++r) {
    if (cheap[r] > 0) share_[r] = std::min(share_[r], exact[r] / cheap[r]);
  }
}

}  // namespace nlsplit
