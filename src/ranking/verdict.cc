#include "ranking/verdict.h"

#include <algorithm>
#include <cmath>

#include "ranking/evaluate.h"

namespace nlsplit {
namespace {

bool is_split(const Plan& plan) { return plan.stages.size() > 1; }
bool is_single(const Plan& plan) { return plan.stages.size() == 1 && plan.stages[0].devices.size() == 1; }

// Makespan with all links `factor` times as fast: the fast tier, and no shorter than the busiest link or device.
double makespan_at(LoweredPlan& lowered, double factor) {
  std::vector<Route> routes = lowered.timed.routes;
  for (Route& route : lowered.timed.routes) route.bandwidth = route.bandwidth * factor;
  Timing timing;
  simulate_fast(lowered.timed, timing);
  lowered.timed.routes = std::move(routes);
  double bound = *std::max_element(lowered.load.device_seconds.begin(), lowered.load.device_seconds.end());
  for (const auto& [hop, busy] : lowered.load.link_seconds) bound = std::max(bound, busy / factor);
  return std::max(timing.makespan, bound);
}

// The factor at which the split and the single machine are equally fast, by bisection over six decades.
std::optional<double> break_even(LoweredPlan& split, LoweredPlan& single) {
  const auto split_wins = [&](double factor) { return makespan_at(split, factor) < makespan_at(single, factor); };
  double slow = 1e-3, fast = 1e3;
  if (split_wins(slow) || !split_wins(fast)) return std::nullopt;
  while (fast / slow > 1.001) {
    const double middle = std::sqrt(slow * fast);
    (split_wins(middle) ? fast : slow) = middle;
  }
  return fast;
}

const PreparedModel& model_for(const std::vector<PreparedModel>& prepared, int micro_batches) {
  for (const PreparedModel& model : prepared) {
    if (model.micro_batches == micro_batches) return model;
  }
  CHECK(false, "a plan with a micro-batch count nobody prepared");
}

}  // namespace

Result<Verdict> make_verdict(const Scenario& scenario, const std::vector<PreparedModel>& prepared, const CostTable& costs,
                             const Ranking& ranking) {
  Verdict verdict;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {   // in order: the first of each kind is the best
    const RankedPlan& ranked = ranking.judged[i];
    std::optional<size_t>& yardstick = is_split(ranked.plan)    ? verdict.best_split
                                       : is_single(ranked.plan) ? verdict.best_single
                                                                : verdict.best_replicated;
    if (!yardstick) yardstick = i;
    if (!verdict.best_latency || ranked.estimate.latency_mean_s < ranking.judged[*verdict.best_latency].estimate.latency_mean_s) {
      verdict.best_latency = i;
    }
  }
  if (!verdict.best_split || !verdict.best_single) return verdict;
  const Plan& split = ranking.judged[*verdict.best_split].plan;
  const Plan& single = ranking.judged[*verdict.best_single].plan;
  ASSIGN_OR_RETURN(LoweredPlan lowered_split, lower_plan(scenario, model_for(prepared, split.micro_batches), split, costs));
  ASSIGN_OR_RETURN(LoweredPlan lowered_single, lower_plan(scenario, model_for(prepared, single.micro_batches), single, costs));
  verdict.break_even = break_even(lowered_split, lowered_single);
  return verdict;
}

}  // namespace nlsplit
