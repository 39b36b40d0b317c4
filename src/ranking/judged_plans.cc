// The order of the judged plans, and how much better another plan could be.
#include "ranking/judged_plans.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/cores.h"
#include "ranking/lower_bound.h"

namespace nlsplit::inline ranking {
namespace {

double score_of(const Goal& goal, const NoisyEstimate& estimate) {
  return score_of(goal, estimate.makespan_s.p95, estimate.latency_s.p95);
}

}  // namespace

Goal measured_goal(Goal goal, const std::vector<RankedPlan>& judged) {
  std::vector<Estimate> singles, others;
  for (const RankedPlan& plan : judged) {
    std::vector<Estimate>& kind = is_single(plan.plan) ? singles : others;
    kind.push_back(plan.estimate);
  }
  if (!judged.empty()) set_yardstick(goal, singles, others);
  return goal;
}

void sort_judged(const Scenario& scenario, const Goal& goal, JudgedPlans& judged) {
  sort_judged_by([&](size_t i) { return score_of(goal, judged.ranked[i].estimate); },
                 [&](size_t i) { return fullest_device(scenario, judged.ranked[i].estimate).share; }, judged);
}

void sort_judged_by(const std::function<double(size_t)>& score, const std::function<double(size_t)>& fullest,
                    JudgedPlans& judged) {
  std::vector<size_t> order(judged.ranked.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, score);
  for (auto begin = order.begin(); begin != order.end();) {
    const double least = score(*begin);
    const auto end = std::find_if(begin, order.end(), [&](size_t i) { return score(i) > least * as_good; });
    std::ranges::stable_sort(begin, end, {},
                             [&](size_t i) { return std::pair(!is_single(judged.ranked[i].plan), fullest(i)); });
    begin = end;
  }
  arrange_judged(order, judged);
}

void arrange_judged(const std::vector<size_t>& order, JudgedPlans& judged) {
  std::vector<RankedPlan> ranked;
  std::vector<LoweredPlan> lowered;
  std::vector<std::vector<DeviceNeeds>> needs;
  for (const size_t i : order) {
    if (!judged.needs.empty()) needs.push_back(std::move(judged.needs[i]));
    ranked.push_back(std::move(judged.ranked[i]));
    lowered.push_back(std::move(judged.lowered[i]));
  }
  judged.ranked = std::move(ranked);
  judged.lowered = std::move(lowered);
  judged.needs = std::move(needs);
}

std::vector<size_t> order_of(const Goal& goal, const std::vector<RankedPlan>& judged, bool by_p95) {
  std::vector<size_t> order(judged.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (by_p95) std::ranges::stable_sort(order, {}, [&](size_t i) { return score_of(goal, judged[i].noisy.value()); });
  return order;
}

Result<std::optional<double>> bound_of_all(const RankContext& context, const Goal& goal,
                                           const std::vector<RankedPlan>& judged, bool only_formulas) {
  const Scenario& scenario = context.scenario;
  const bool inside = context.splits_layers ||
                      std::ranges::any_of(judged, [](const RankedPlan& plan) { return has_splits(plan.plan); });
  if (judged.empty() || (inside && !only_formulas)) return std::optional<double>();
  // Nearer to the best plan there is nothing to say; nor is there of a count that is beyond another's bound, or of
  // makespans where latencies are wanted.
  constexpr double near = 0.995, beyond = 1 + 1e-6;
  double enough_s = goal.objective == Objective::latency ? 0 : std::numeric_limits<double>::infinity();
  for (const RankedPlan& plan : judged) enough_s = std::min(enough_s, near * plan.estimate.makespan_s);
  std::mutex mutex;  // of enough_s
  std::vector<std::optional<Result<LowerBound>>> bounds(context.prepared.size());
  on_all_cores(
      bounds.size(),
      [&](size_t k) {
        const size_t i = bounds.size() - 1 - k;  // the bound of many micro-batches is mostly the least
        double enough = 0;
        {
          const std::lock_guard lock(mutex);
          enough = enough_s;
        }
        bounds[i] = lower_bound(context.prepared[i], scenario.cluster, context.costs, scenario.endpoints,
                                scenario.search.max_devices, inside, enough, context.workers);
        if (goal.objective != Objective::throughput || !bounds[i]->ok()) return;
        const std::lock_guard lock(mutex);
        enough_s = std::min(enough_s, bounds[i]->value().makespan_s * beyond);
      },
      context.workers);
  std::optional<double> least;
  for (std::optional<Result<LowerBound>>& found : bounds) {
    ASSIGN_OR_RETURN(const LowerBound bound, *std::move(found));
    const double score = score_of(goal, bound.makespan_s, bound.latency_s);
    least = std::min(least.value_or(score), score);
  }
  return least;
}

}  // namespace nlsplit::inline ranking
