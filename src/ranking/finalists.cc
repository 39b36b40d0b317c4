#include "ranking/finalists.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "ranking/baseline_plans.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t judged_by_bound = 8;
constexpr size_t required_each = 10;  // plans judged for each requirement, whatever the objective

// Of these the best in each respect must be judged.
template <class Among>
void choose_best(const std::vector<Estimate>& estimates, const Among& among, std::vector<Candidate>& candidates) {
  PlanMetrics least;
  std::array<size_t, std::tuple_size_v<PlanMetrics>> champion = {};
  least.fill(std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!among(candidates[i])) continue;
    const PlanMetrics scores = metrics_of(estimates[i]);
    for (size_t s = 0; s < scores.size(); ++s) {
      if (scores[s] >= least[s]) continue;
      least[s] = scores[s];
      champion[s] = i;
    }
  }
  for (size_t s = 0; s < champion.size(); ++s) {
    if (std::isfinite(least[s])) candidates[champion[s]].must_judge = true;
  }
}

// The best split in each respect is simulated whatever the objective: the verdict speaks of all three. So is the most
// even one, which would be the best over faster links. And the yardsticks: all of them where they are few, else the
// best device and the best copies in each respect.
void choose_champions(const std::vector<Estimate>& estimates, bool many_yardsticks,
                      std::vector<Candidate>& candidates) {
  for (const PlanKind kind : {PlanKind::split, PlanKind::single, PlanKind::copies}) {
    if (kind != PlanKind::split && !many_yardsticks) continue;
    const auto among = [&](const Candidate& candidate) {
      return kind_of(candidate.ranked.plan) == kind && (kind == PlanKind::split || !candidate.ranked.own);
    };
    choose_best(estimates, among, candidates);
  }
}

// The first `most` by these scores must be judged.
template <class Score>
void choose_first(size_t most, const Score& score, std::vector<Candidate>& candidates) {
  std::vector<Candidate*> order;
  for (Candidate& candidate : candidates) order.push_back(&candidate);
  std::ranges::stable_sort(order, {}, [&](const Candidate* candidate) { return score(*candidate); });
  for (size_t i = 0; i < std::min(most, order.size()); ++i) order[i]->must_judge = true;
}

// The fast tier does not share links. Bounds do, so a few plans are judged that are best by the larger of both.
void choose_by_bound(const RankContext& context, std::vector<Candidate>& candidates) {
  const Scenario& scenario = context.scenario;
  if (scenario.objective != Objective::throughput || scenario.generation || !context.options.tier->shares_links())
    return;
  const auto least = [](const Candidate& candidate) {
    return std::max(candidate.fast_score, candidate.found ? candidate.found->bound_seconds : 0);
  };
  choose_first(judged_by_bound, least, candidates);
}

void draw_samples(const RankOptions& options, std::vector<Candidate>& candidates) {
  Random random(options.seed);
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < std::min(options.samples, order.size()); ++i) {
    std::swap(order[i], order[i + random.below(order.size() - i)]);
    candidates[order[i]].ranked.sampled = candidates[order[i]].must_judge = true;
  }
}

// Those quickest to the first token, and from one to the next, are judged whatever the objective.
void choose_for_requirements(const RankContext& context, std::vector<Candidate>& candidates) {
  if (!context.scenario.generation || !context.scenario.generation->require.any() || !prompts_matter(context)) return;
  for (double Candidate::*seconds : {&Candidate::prompt_s, &Candidate::token_s})
    choose_first(
        required_each, [&](const Candidate& candidate) { return candidate.*seconds; }, candidates);
}

}  // namespace

std::vector<Candidate> choose_finalists(const RankContext& context, FittingPlans fitting, bool many_yardsticks,
                                        std::vector<RankedBaseline>& baselines) {
  std::vector<Candidate>& candidates = fitting.candidates;
  choose_champions(fitting.estimates, many_yardsticks, candidates);
  choose_best_of_baselines(baselines, candidates);
  std::ranges::stable_sort(candidates, {}, &Candidate::fast_score);
  choose_by_bound(context, candidates);
  draw_samples(context.options, candidates);
  // Also without RankOptions::robust: a plan's number must not depend on that option.
  if (context.noise_bound)
    choose_first(
        context.finalists, [](const Candidate& candidate) { return candidate.noisy_score; }, candidates);
  choose_for_requirements(context, candidates);
  std::vector<Candidate> finalists;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i < context.finalists || candidates[i].must_judge) finalists.push_back(std::move(candidates[i]));
  }
  return finalists;
}

}  // namespace nlsplit::inline ranking
