// Plans that compute prompts on some machines and tokens on others (compile/hand_over.h): of the plans that are timed,
// those that are good at the one and those that are good at the other are put together where both may be better.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "ranking/alike.h"
#include "ranking/generation.h"
#include "ranking/ranker.h"

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
std::vector<const RankedPlan*> best_of(const Ranking& ranking, double GenerationTimes::*seconds) {
  std::vector<const RankedPlan*> all, best;
  for (const RankedPlan& ranked : ranking.judged) {
    if (ranked.generation && !ranked.own && ranked.plan.prefill.empty() &&
        std::ranges::all_of(ranked.plan.stages, is_of_one_device))
      all.push_back(&ranked);
  }
  std::ranges::stable_sort(all, {}, [&](const RankedPlan* ranked) { return (*ranked->generation).*seconds; });
  for (const RankedPlan* ranked : all) {
    const bool known = std::ranges::any_of(
        best, [&](const RankedPlan* other) { return are_alike(ranked->plan, other->plan, ranking.node_shares); });
    if (!known) best.push_back(ranked);
    if (best.size() == of_each_kind) break;
  }
  return best;
}

}  // namespace

// By what is known of both: the hand-over is left out, so none that pays is.
std::vector<Plan> Ranker::plans_with_prefill() const {
  const SearchOptions& search = scenario_.search;
  std::vector<Plan> plans;
  const bool in_pages = scenario_.generation && scenario_.generation->page > 0;
  if (!search.layers || in_pages || !prompts_matter() || wants_noise() || wants_parts_) return plans;
  Worth best{std::numeric_limits<double>::infinity(), 0};
  for (const RankedPlan& ranked : ranking_.judged) {
    if (ranked.generation) best = std::min(best, worth_of(scenario_, *ranked.generation));
  }
  std::vector<std::pair<Worth, Plan>> together;
  for (const RankedPlan* prompts : best_of(ranking_, &GenerationTimes::first_token_s)) {
    for (const RankedPlan* tokens : best_of(ranking_, &GenerationTimes::next_token_s)) {
      const Plan &a = prompts->plan, &b = tokens->plan;
      if (a.stages == b.stages || a.micro_batches != b.micro_batches) continue;
      if (search.max_devices > 0 && count_devices(a, b) > search.max_devices) continue;
      GenerationTimes times = *tokens->generation;
      times.first_token_s = prompts->generation->first_token_s;
      times.tokens_per_s = tokens_per_s(scenario_, times);
      const Worth worth = worth_of(scenario_, times);
      if (!is_clearly_better(worth, best)) continue;
      together.emplace_back(worth, b);
      together.back().second.prefill = a.stages;
    }
  }
  std::ranges::stable_sort(together, {}, [](const auto& one) { return one.first; });
  for (size_t i = 0; i < std::min(together.size(), most_together); ++i) plans.push_back(std::move(together[i].second));
  return plans;
}

// Behind the others that are judged.
Status Ranker::judge_plans_with_prefill() {
  std::vector<Judging> judging;
  for (Plan& plan : plans_with_prefill()) {
    Candidate candidate;
    candidate.ranked.plan = std::move(plan);
    candidate.must_judge = true;
    judging.emplace_back(std::move(candidate));
  }
  if (judging.empty()) return ok_status();
  ranking_.considered += judging.size();
  ranking_.space += static_cast<double>(judging.size());
  RETURN_IF_ERROR(simulate(judging));
  for (Judging& plan : judging) RETURN_IF_ERROR(note_judged(plan));
  return time_judged(needed_.size());
}

}  // namespace nlsplit::inline ranking
