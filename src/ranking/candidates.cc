#include "ranking/candidates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/sort_large.h"
#include "ranking/baseline_plans.h"
#include "ranking/lowering_work.h"
#include "ranking/pruning.h"

namespace nlsplit::inline ranking {
namespace {

// Plans that are no split, and their layers, each copy counted, up to which all are simulated.
constexpr size_t most_yardsticks = 100, most_yardstick_layers = 100'000;

// All of them are timed and simulated where that is little work; else the best three of each kind are timed first, and
// the others if they may be better. Whether there are so many.
bool choose_yardsticks(const Scenario& scenario, std::vector<Candidate>& candidates) {
  std::array<std::vector<Candidate*>, plan_kind_count> kinds;
  size_t count = 0, layers = 0;
  for (Candidate& candidate : candidates) {
    if (is_split(candidate.ranked.plan)) continue;
    kinds[static_cast<size_t>(kind_of(candidate.ranked.plan))].push_back(&candidate);
    ++count;
    layers += layers_lowered(candidate.ranked.plan) * (scenario.training ? layers_of_a_step : 1);
  }
  const bool many = count > most_yardsticks || layers > most_yardstick_layers;
  for (std::vector<Candidate*>& kind : kinds) {
    std::ranges::stable_sort(kind, {}, [](const Candidate* candidate) { return candidate->bound; });
    for (size_t i = 0; i < kind.size(); ++i) {
      if (many && i >= Pruning::min_timed_unsplit) continue;
      kind[i]->bound = 0;
      if (many) continue;
      kind[i]->must_judge = true;
      kind[i]->found.reset();
    }
  }
  return many;
}

}  // namespace

Result<std::vector<RankedPlan>> own_plans(const Scenario& scenario, const Graph& graph, Tally& tally) {
  std::vector<RankedPlan> own;
  for (const UserPlan& plan : scenario.plans) {
    auto resolved = resolve_own_plan(scenario, graph, plan);
    if (resolved) {
      std::ranges::move(*resolved, std::back_inserter(own));
      continue;
    }
    if (resolved.error().kind != ErrorKind::unsupported) return resolved.error();
    tally.own_refused.push_back({plan.name, resolved.error()});
  }
  for (const RankedPlan& plan : own) ++tally.own_pairs[plan.plan.name];
  return own;
}

Candidates order_candidates(const Scenario& scenario, std::vector<Candidate> found, std::vector<RankedPlan> own,
                            size_t baselines) {
  Candidates all;
  all.plans = std::move(found);
  all.many_yardsticks = choose_yardsticks(scenario, all.plans);
  choose_baseline_plans(baselines, all.plans);
  for (RankedPlan& plan : own) {
    Candidate candidate;
    candidate.ranked = std::move(plan);
    candidate.must_judge = true;
    all.plans.push_back(std::move(candidate));
  }
  // By the bound, so that an interrupted ranking has timed the most promising.
  sort_large(all.plans, [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  return all;
}

}  // namespace nlsplit::inline ranking
