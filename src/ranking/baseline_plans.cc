#include "ranking/baseline_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "partition/baseline_generation.h"
#include "ranking/lowering_work.h"

namespace nlsplit::inline ranking {
namespace {

// If the plans of all baselines have at most this many layers (counted for each replica), all are timed. Otherwise two
// of each baseline, those with the best bounds, and others only if they may be better.
constexpr size_t most_baseline_layers = 100'000, min_timed_of_a_baseline = 2;

bool is_of(const Candidate& candidate, size_t baseline) { return (candidate.baselines >> baseline & 1) != 0; }

}  // namespace

std::span<const Baseline> all_baselines(const Scenario& scenario) {
  if (scenario.generation) return generation_baselines();
  return scenario.training && !scenario.search.axes.empty() ? training_baselines() : baselines();
}

uint32_t baselines_of(const Plan& plan, const std::vector<std::vector<Stage>>& stages) {
  uint32_t mask = 0;
  for (size_t b = 0; b < stages.size(); ++b) {
    if (stages[b] == plan.stages) mask |= uint32_t{1} << b;
  }
  return mask;
}

void note_search(const Scenario& scenario, const std::vector<std::vector<Stage>>& stages,
                 const std::vector<ScoredPlan>& found, std::vector<RankedBaseline>& baselines) {
  const std::span<const Baseline> all = all_baselines(scenario);
  for (size_t b = 0; b < all.size(); ++b) {
    if (b == baselines.size()) {
      baselines.emplace_back().name = all[b].name;
      baselines[b].rule = all[b].rule;
    }
    const bool is_found =
        std::ranges::any_of(found, [&](const ScoredPlan& scored) { return scored.plan.stages == stages[b]; });
    if (is_found || !baselines[b].why_not.empty()) continue;
    if (stages[b].empty())
      baselines[b].why_not = all[b].why_none;
    else if (!within_limits(stages[b], scenario.search))
      baselines[b].why_not = "the limits of the scenario's search leave it out";
    else
      baselines[b].why_not = "two of its devices cannot talk to each other";
  }
}

void choose_baseline_plans(size_t baselines, std::vector<Candidate>& candidates) {
  size_t layers = 0;
  std::vector<std::vector<Candidate*>> of_baseline(baselines);
  for (Candidate& candidate : candidates) {
    if (candidate.baselines == 0) continue;
    layers += layers_lowered(candidate.ranked.plan);
    for (size_t b = 0; b < baselines; ++b) {
      if (is_of(candidate, b)) of_baseline[b].push_back(&candidate);
    }
  }
  for (std::vector<Candidate*>& plans : of_baseline) {
    std::ranges::stable_sort(plans, {},
                             [](const Candidate* plan) { return plan->found ? plan->found->bound_seconds : 0; });
    if (layers > most_baseline_layers && plans.size() > min_timed_of_a_baseline) plans.resize(min_timed_of_a_baseline);
  }
  for (const std::vector<Candidate*>& plans : of_baseline) {
    for (Candidate* plan : plans) {
      plan->bound = 0;
      plan->found.reset();
    }
  }
}

void note_not_timed(const Candidate& candidate, const std::optional<Error>& trouble,
                    const std::optional<Misfit>& too_large, std::vector<RankedBaseline>& baselines) {
  for (size_t b = 0; b < baselines.size(); ++b) {
    if (!is_of(candidate, b) || !baselines[b].why_not.empty()) continue;
    baselines[b].plan = candidate.ranked.plan;
    baselines[b].why_not = trouble ? trouble->message
                                   : fmt::format("{} has {} and would need {}", too_large->device,
                                                 to_string(too_large->has), to_string(too_large->least_needed));
  }
}

void choose_best_of_baselines(std::vector<RankedBaseline>& baselines, std::vector<Candidate>& candidates) {
  for (size_t b = 0; b < baselines.size(); ++b) {
    Candidate* best = nullptr;
    for (Candidate& candidate : candidates) {
      if (!is_of(candidate, b)) continue;
      if (best == nullptr || candidate.fast_score < best->fast_score) best = &candidate;
    }
    if (best == nullptr) continue;
    best->must_judge = true;
    baselines[b].plan = best->ranked.plan;
    baselines[b].why_not.clear();
  }
}

void report_baselines(const Scenario& scenario, const Graph& graph, const std::vector<RankedPlan>& judged,
                      std::vector<RankedBaseline>& baselines) {
  for (RankedBaseline& baseline : baselines) {
    if (!baseline.plan.stages.empty()) baseline.text = to_string(baseline.plan, graph, scenario.cluster);
    if (!baseline.why_not.empty()) continue;
    const auto at =
        std::ranges::find_if(judged, [&](const RankedPlan& plan) { return !plan.own && plan.plan == baseline.plan; });
    if (at != judged.end() && !at->why_not.empty()) {
      baseline.why_not = at->why_not;
    } else if (at != judged.end()) {
      baseline.estimate = at->estimate;
      baseline.generation = at->generation;
    } else {
      baseline.why_not = "not timed: the ranking was interrupted";
    }
  }
}

}  // namespace nlsplit::inline ranking
