// Baselines: the plans of other programs' rules are always candidates, so the ranking is never worse than a baseline.
#include <fmt/format.h>

#include <algorithm>

#include "partition/baseline_generation.h"
#include "ranking/ranker.h"

namespace nlsplit::inline ranking {
namespace {

// If the plans of all rules have at most this many layers (counted for each replica), all are timed. Otherwise two of
// each rule, those with the best bounds, and others only if they may be better.
constexpr size_t most_rule_layers = 100'000, min_timed_of_a_rule = 2;

}  // namespace

std::span<const Baseline> Ranker::all_baselines() const {
  if (scenario_.generation) return generation_baselines();
  return scenario_.training && !scenario_.search.axes.empty() ? training_baselines() : baselines();
}

// Candidate::rules: bit b if the plan is that of rule b.
uint32_t Ranker::rules_of(const Plan& plan, const std::vector<std::vector<Stage>>& rules) {
  uint32_t mask = 0;
  for (size_t b = 0; b < rules.size(); ++b) {
    if (rules[b] == plan.stages) mask |= uint32_t{1} << b;
  }
  return mask;
}

// Keeps the first reason why a rule has no plan, or only plans that cannot run.
void Ranker::note_rules(const Searched& searched) {
  const std::span<const Baseline> all = all_baselines();
  for (size_t b = 0; b < all.size(); ++b) {
    if (b == rules_.size()) {
      rules_.emplace_back().name = all[b].name;
      rules_[b].rule = all[b].rule;
    }
    const std::vector<Stage>& stages = searched.rules[b];
    const bool found = std::ranges::any_of(searched.found.plans,
                                           [&](const ScoredPlan& scored) { return scored.plan.stages == stages; });
    if (found || !rules_[b].why_not.empty()) continue;
    if (stages.empty())
      rules_[b].why_not = all[b].why_none;
    else if (!within_limits(stages, scenario_.search))
      rules_[b].why_not = "the limits of the scenario's search leave it out";
    else
      rules_[b].why_not = "two of its devices cannot talk to each other";
  }
}

void Ranker::choose_rules() {
  size_t layers = 0;
  std::vector<std::vector<Candidate*>> of_rule(rules_.size());
  for (Candidate& candidate : candidates_) {
    if (candidate.rules == 0) continue;
    layers += layers_lowered(candidate.ranked.plan);
    for (size_t b = 0; b < rules_.size(); ++b) {
      if ((candidate.rules >> b & 1) != 0) of_rule[b].push_back(&candidate);
    }
  }
  for (size_t b = 0; b < rules_.size(); ++b) {
    std::vector<Candidate*>& plans = of_rule[b];
    std::ranges::stable_sort(plans, {},
                             [](const Candidate* plan) { return plan->found ? plan->found->bound_seconds : 0; });
    if (layers > most_rule_layers && plans.size() > min_timed_of_a_rule) plans.resize(min_timed_of_a_rule);
  }
  for (const std::vector<Candidate*>& plans : of_rule) {
    for (Candidate* plan : plans) {
      plan->bound = 0;
      plan->found.reset();
    }
  }
}

void Ranker::note_rule(const Candidate& candidate, const Timed& timed) {
  if (candidate.rules == 0 || timed.estimate) return;
  for (size_t b = 0; b < rules_.size(); ++b) {
    if ((candidate.rules >> b & 1) == 0 || !rules_[b].why_not.empty()) continue;
    rules_[b].plan = candidate.ranked.plan;
    rules_[b].why_not = timed.trouble
                            ? timed.trouble->message
                            : fmt::format("{} has {} and would need {}", timed.too_large->device,
                                          to_string(timed.too_large->has), to_string(timed.too_large->least_needed));
  }
}

void Ranker::choose_best_of_rules() {
  for (size_t b = 0; b < rules_.size(); ++b) {
    Candidate* best = nullptr;
    for (Candidate& candidate : candidates_) {
      if ((candidate.rules >> b & 1) == 0) continue;
      if (best == nullptr || candidate.fast_score < best->fast_score) best = &candidate;
    }
    if (best == nullptr) continue;
    best->must_judge = true;
    rules_[b].plan = best->ranked.plan;
    rules_[b].why_not.clear();
  }
}

void Ranker::report_rules() {
  for (RankedBaseline& rule : rules_) {
    if (!rule.plan.stages.empty()) rule.text = to_string(rule.plan, graph_, scenario_.cluster);
    if (!rule.why_not.empty()) continue;
    const auto judged = std::ranges::find_if(
        ranking_.judged, [&](const RankedPlan& plan) { return !plan.own && plan.plan == rule.plan; });
    if (judged != ranking_.judged.end() && !judged->why_not.empty()) {
      rule.why_not = judged->why_not;
    } else if (judged != ranking_.judged.end()) {
      rule.estimate = judged->estimate;
      rule.generation = judged->generation;
    } else {
      rule.why_not = "not timed: the ranking was interrupted";
    }
  }
  ranking_.baselines = std::move(rules_);
}

}  // namespace nlsplit::inline ranking
