#include "ranking/prefill_plans.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "ranking/alike.h"
#include "ranking/generation.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t of_each_kind = 4, most_together = 6;  // a session of each is compiled and simulated

// How far from what is required, then what plans are ordered by. Of the context nothing is known yet.
using Worth = std::pair<double, double>;
Worth worth_of(const Scenario& scenario, GenerationTimes times) {
  times.largest_context = std::numeric_limits<int64_t>::max();
  double farthest = 1;
  for (const Miss& miss : misses_of(scenario, times)) farthest = std::max(farthest, miss.times);
  return {farthest, cost_of(scenario, times)};
}

bool is_clearly_better(const Worth& a, const Worth& b) {
  if (a.first != b.first) return a.first < b.first;
  return a.second * clearly_faster < b.second;
}

size_t count_devices(const Plan& a, const Plan& b) {
  std::set<DeviceId> devices;
  for (const Plan* plan : {&a, &b}) {
    for (const Stage& stage : plan->stages) devices.insert(stage.devices.begin(), stage.devices.end());
  }
  return devices.size();
}

// The best by these seconds, no two of them alike.
std::vector<const RankedPlan*> best_of(const std::vector<RankedPlan>& judged, const std::vector<double>& node_shares,
                                       double GenerationTimes::*seconds) {
  std::vector<const RankedPlan*> all, best;
  for (const RankedPlan& ranked : judged) {
    if (ranked.generation && !ranked.own && ranked.plan.prefill.empty() &&
        std::ranges::all_of(ranked.plan.stages, is_of_one_device))
      all.push_back(&ranked);
  }
  std::ranges::stable_sort(all, {}, [&](const RankedPlan* ranked) { return (*ranked->generation).*seconds; });
  for (const RankedPlan* ranked : all) {
    const bool known = std::ranges::any_of(
        best, [&](const RankedPlan* other) { return are_alike(ranked->plan, other->plan, node_shares); });
    if (!known) best.push_back(ranked);
    if (best.size() == of_each_kind) break;
  }
  return best;
}

}  // namespace

// By what is known of both: the hand-over is left out, so none that pays is.
std::vector<Plan> plans_with_prefill(const RankContext& context, const std::vector<RankedPlan>& judged,
                                     const std::vector<double>& node_shares) {
  const Scenario& scenario = context.scenario;
  const SearchOptions& search = scenario.search;
  std::vector<Plan> plans;
  const bool in_pages = scenario.generation && scenario.generation->page > 0;
  if (!search.layers || in_pages || !prompts_matter(context) || wants_noise(context) || context.wants_parts)
    return plans;
  Worth best{std::numeric_limits<double>::infinity(), 0};
  for (const RankedPlan& ranked : judged) {
    if (ranked.generation) best = std::min(best, worth_of(scenario, *ranked.generation));
  }
  std::vector<std::pair<Worth, Plan>> together;
  for (const RankedPlan* prompts : best_of(judged, node_shares, &GenerationTimes::first_token_s)) {
    for (const RankedPlan* tokens : best_of(judged, node_shares, &GenerationTimes::next_token_s)) {
      const Plan &a = prompts->plan, &b = tokens->plan;
      if (a.stages == b.stages || a.micro_batches != b.micro_batches) continue;
      if (search.max_devices > 0 && count_devices(a, b) > search.max_devices) continue;
      GenerationTimes times = *tokens->generation;
      times.first_token_s = prompts->generation->first_token_s;
      times.tokens_per_s = tokens_per_s(scenario, times);
      const Worth worth = worth_of(scenario, times);
      if (!is_clearly_better(worth, best)) continue;
      together.emplace_back(worth, b);
      together.back().second.prefill = a.stages;
    }
  }
  std::ranges::stable_sort(together, {}, [](const auto& one) { return one.first; });
  for (size_t i = 0; i < std::min(together.size(), most_together); ++i) plans.push_back(std::move(together[i].second));
  return plans;
}

}  // namespace nlsplit::inline ranking
