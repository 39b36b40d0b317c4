#include "ranking/verdict.h"

#include <algorithm>
#include <limits>

#include "ranking/scaled_links.h"

namespace nlsplit::inline ranking {
namespace {

// The bandwidth factor from which on the first split is clearly faster than the single device.
std::optional<double> break_even(const std::vector<const LoweredPlan*>& splits, const LoweredPlan& single) {
  return where_it_changes(
      [&](double factor) {
        const double alone = makespan_over(single, {.bandwidth = factor});
        return std::any_of(splits.begin(), splits.end(), [&](const LoweredPlan* split) {
          return makespan_over(*split, {.bandwidth = factor}) < alone / clearly_faster;
        });
      },
      true);
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

Verdict make_verdict(const Ranking& ranking, const std::vector<LoweredPlan>& judged) {
  CHECK(judged.size() == ranking.judged.size(), "lowered plans of another ranking");
  Verdict verdict;
  verdict.throughput = best_by(ranking, [](const Estimate& e) { return e.makespan_s; });
  verdict.latency = best_by(ranking, [](const Estimate& e) { return e.latency_mean_s; });
  verdict.memory = best_by(ranking, [](const Estimate& e) { return static_cast<double>(e.largest_memory.value()); });
  if (!verdict.throughput.split || !verdict.throughput.single) return verdict;
  const LoweredPlan& single = judged[*verdict.throughput.single];
  // All of them: over other links another split would be the best.
  std::vector<const LoweredPlan*> splits;
  for (size_t i = 0; i < judged.size(); ++i) {
    if (is_split(ranking.judged[i].plan)) splits.push_back(&judged[i]);
  }
  verdict.break_even = break_even(splits, single);
  double fastest = std::numeric_limits<double>::infinity();
  for (const LoweredPlan* split : splits) fastest = std::min(fastest, makespan_over(*split, no_network));
  if (fastest > 0) verdict.gain_without_network = makespan_over(single, no_network) / fastest;
  return verdict;
}

}  // namespace nlsplit::inline ranking
