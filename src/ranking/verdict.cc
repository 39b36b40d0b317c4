#include "ranking/verdict.h"

#include <algorithm>
#include <atomic>

#include "base/cores.h"
#include "ranking/scaled_links.h"

namespace nlsplit::inline ranking {
namespace {

// The bandwidth factor from which on the first split is clearly faster than the single device.
std::optional<double> break_even(const std::vector<const LoweredPlan*>& splits, const LoweredPlan& single,
                                 size_t workers) {
  return where_it_changes(
      [&](double factor) {
        const double alone = makespan_over(single, {.bandwidth = factor});
        std::atomic<bool> any = false;
        on_all_cores(
            splits.size(),
            [&](size_t i) {
              if (!any && is_shorter_over(*splits[i], {.bandwidth = factor}, alone / clearly_faster)) any = true;
            },
            workers);
        return any.load();
      },
      true);
}

// cost: none: the plan cannot run. with_prefill: also plans whose prompts are computed elsewhere: their tokens are
// those of other plans.
template <class Cost>
Yardsticks best_by(const Ranking& ranking, const Cost& cost, bool with_prefill = true) {
  Yardsticks best;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const RankedPlan& ranked = ranking.judged[i];
    if (ranking.generates && !ranked.generation) continue;
    if (!with_prefill && !ranked.plan.prefill.empty()) continue;
    std::optional<size_t>& of_kind = is_split(ranked.plan)    ? best.split
                                     : is_single(ranked.plan) ? best.single
                                                              : best.copies;
    if (!of_kind || cost(ranked) < cost(ranking.judged[*of_kind])) of_kind = i;
  }
  return best;
}

}  // namespace

Verdict make_verdict(const Ranking& ranking, const std::vector<LoweredPlan>& judged, size_t workers) {
  CHECK(judged.size() == ranking.judged.size(), "lowered plans of another ranking");
  Verdict verdict;
  if (ranking.generates) {
    verdict.throughput = best_by(ranking, [](const RankedPlan& p) { return -p.generation->tokens_per_s; });
    verdict.latency = best_by(
        ranking, [](const RankedPlan& p) { return p.generation->next_token_s; }, false);
    verdict.first_token = best_by(ranking, [](const RankedPlan& p) { return p.generation->first_token_s; });
    verdict.memory =
        best_by(ranking, [](const RankedPlan& p) { return static_cast<double>(p.generation->fullest_memory.value()); });
  } else {
    verdict.throughput = best_by(ranking, [](const RankedPlan& p) { return p.estimate.makespan_s; });
    verdict.latency = best_by(ranking, [](const RankedPlan& p) { return p.estimate.latency_mean_s; });
    verdict.memory =
        best_by(ranking, [](const RankedPlan& p) { return static_cast<double>(p.estimate.largest_memory.value()); });
  }
  // Of generation a token is what links decide on.
  const Yardsticks& fastest_of = ranking.generates ? verdict.latency : verdict.throughput;
  if (!fastest_of.split || !fastest_of.single) return verdict;
  const LoweredPlan& single = judged[*fastest_of.single];
  // All of them: over other links another split would be the best.
  std::vector<const LoweredPlan*> splits;
  for (size_t i = 0; i < judged.size(); ++i) {
    if (is_split(ranking.judged[i].plan)) splits.push_back(&judged[i]);
  }
  verdict.break_even = break_even(splits, single, workers);
  std::vector<double> seconds(splits.size());
  on_all_cores(
      splits.size(), [&](size_t i) { seconds[i] = makespan_over(*splits[i], no_network); }, workers);
  const double fastest = *std::ranges::min_element(seconds);
  if (fastest > 0) verdict.gain_without_network = makespan_over(single, no_network) / fastest;
  return verdict;
}

}  // namespace nlsplit::inline ranking
