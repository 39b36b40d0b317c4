#include "ranking/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ranking/evaluate.h"

namespace nlsplit {
namespace {

bool is_split(const Plan& plan) { return plan.stages.size() > 1; }
bool is_single(const Plan& plan) { return plan.stages.size() == 1 && plan.stages[0].devices.size() == 1; }

// Makespan if messages take `factor` times their time on the way; 0: none at all, not even latency. By the fast tier,
// and no shorter than the busiest link or device.
double makespan_at(const LoweredPlan& lowered, double factor) {
  TimedGraph graph = lowered.timed;
  for (Activity& activity : graph.activities) {
    if (!activity.is_transfer) continue;
    activity.duration *= factor;
    if (factor == 0) activity.latency = activity.handshake = 0;
  }
  Timing timing;
  simulate_fast(graph, timing);
  double bound = *std::max_element(lowered.load.device_seconds.begin(), lowered.load.device_seconds.end());
  for (const auto& [hop, busy] : lowered.load.link_seconds) bound = std::max(bound, busy * factor);
  return std::max(timing.makespan, bound);
}

// The bandwidth factor at which the first split is as fast as the single device, by bisection over nine decades.
std::optional<double> break_even(const std::vector<LoweredPlan>& splits, const LoweredPlan& single) {
  const auto split_wins = [&](double factor) {
    const double alone = makespan_at(single, 1 / factor);
    return std::any_of(splits.begin(), splits.end(), [&](const LoweredPlan& split) {
      return makespan_at(split, 1 / factor) < alone / clearly_faster;
    });
  };
  double slow = 1e-3, fast = 1e6;
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

Yardsticks best_by(const Ranking& ranking, double (*cost)(const Estimate&)) {
  Yardsticks best;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const RankedPlan& ranked = ranking.judged[i];
    std::optional<size_t>& of_kind = is_split(ranked.plan)    ? best.split
                                     : is_single(ranked.plan) ? best.single
                                                              : best.copies;
    if (!of_kind || cost(ranked.estimate) < cost(ranking.judged[*of_kind].estimate)) of_kind = i;
  }
  return best;
}

}  // namespace

Result<Verdict> make_verdict(const Scenario& scenario, const std::vector<PreparedModel>& prepared,
                             const CostTable& costs, const Ranking& ranking) {
  Verdict verdict;
  verdict.throughput = best_by(ranking, [](const Estimate& e) { return e.makespan_s; });
  verdict.latency = best_by(ranking, [](const Estimate& e) { return e.latency_mean_s; });
  verdict.memory = best_by(ranking, [](const Estimate& e) { return static_cast<double>(e.largest_memory.value()); });
  if (!verdict.throughput.split || !verdict.throughput.single) return verdict;
  const auto lowered = [&](size_t index) {
    const Plan& plan = ranking.judged[index].plan;
    return lower_plan(scenario, model_for(prepared, plan.micro_batches), plan, costs);
  };
  ASSIGN_OR_RETURN(const LoweredPlan single, lowered(*verdict.throughput.single));
  // All of them: over other links another split would be the best.
  std::vector<LoweredPlan> splits;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    if (!is_split(ranking.judged[i].plan)) continue;
    ASSIGN_OR_RETURN(LoweredPlan split, lowered(i));
    splits.push_back(std::move(split));
  }
  verdict.break_even = break_even(splits, single);
  double fastest = std::numeric_limits<double>::infinity();
  for (const LoweredPlan& split : splits) fastest = std::min(fastest, makespan_at(split, 0));
  if (fastest > 0) verdict.gain_without_network = makespan_at(single, 0) / fastest;
  return verdict;
}

}  // namespace nlsplit
