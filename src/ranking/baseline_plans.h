// The plans of the baselines (partition/baselines.h) are always candidates, so the ranking is never worse than a
// baseline. One RankedBaseline for each of all_baselines(), in their order, says what became of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "partition/baselines.h"
#include "ranking/candidate.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// Those that a scenario is compared with.
std::span<const Baseline> all_baselines(const Scenario& scenario);

// Candidate::baselines: bit b if the plan is that of baseline b. stages: [baseline].
uint32_t baselines_of(const Plan& plan, const std::vector<std::vector<Stage>>& stages);

// After the search for one micro-batch count: keeps the first reason why a baseline has no plan. stages: [baseline]:
// its plan there, empty if it has none; found: by the search.
void note_search(const Scenario& scenario, const std::vector<std::vector<Stage>>& stages,
                 const std::vector<ScoredPlan>& found, std::vector<RankedBaseline>& baselines);

// Which plans of the baselines are timed before all others: all of them where that is little work.
void choose_baseline_plans(size_t baselines, std::vector<Candidate>& candidates);

// Keeps the first reason why a plan of a baseline cannot run: one of the two.
void note_not_timed(const Candidate& candidate, const std::optional<Error>& trouble,
                    const std::optional<Misfit>& too_large, std::vector<RankedBaseline>& baselines);

// The best plan of each baseline by the fast tier must be judged.
void choose_best_of_baselines(std::vector<RankedBaseline>& baselines, std::vector<Candidate>& candidates);

// Adds what the judging tier says.
void report_baselines(const Scenario& scenario, const Graph& graph, const std::vector<RankedPlan>& judged,
                      std::vector<RankedBaseline>& baselines);

}  // namespace nlsplit::inline ranking
