// The judging tier: the best plans lowered, verified, simulated over links that share their bandwidth, and ordered.
#pragma once

#include <functional>
#include <vector>

#include "ranking/candidate.h"
#include "ranking/rank_context.h"
#include "ranking/seen_costs.h"
#include "ranking/session_needs.h"
#include "ranking/tally.h"

namespace nlsplit::inline ranking {

struct JudgedPlans {
  std::vector<RankedPlan> ranked;               // as Ranking::judged
  std::vector<LoweredPlan> lowered;             // of each; Programs only if noise is wanted
  std::vector<std::vector<DeviceNeeds>> needs;  // of generation: of each, by the device of its Programs
  SeenCosts costs;                              // of plans that split layers
};

// Simulates the plans and appends them, in their order. Error: a plan of the user's own cannot run.
Status judge(const RankContext& context, std::vector<Candidate> plans, JudgedPlans& judged, Tally& tally);

// The plans under the scenario's noise. How often each was simulated: 0 after an interrupt.
Result<int> judge_under_noise(const RankContext& context, JudgedPlans& judged);

// The goal, relative to what the judging tier says.
Goal measured_goal(Goal goal, const std::vector<RankedPlan>& judged);

// Best first.
void sort_judged(const Scenario& scenario, const Goal& goal, JudgedPlans& judged);
// By this score; of those as good as each other one device comes first, for it needs no others; then the one whose
// fullest device has the most memory left. Both are given the index of a plan.
void sort_judged_by(const std::function<double(size_t)>& score, const std::function<double(size_t)>& fullest,
                    JudgedPlans& judged);
void arrange_judged(const std::vector<size_t>& order, JudgedPlans& judged);

// Ranking::order: indices of the plans. by_p95: of what noise makes of them.
std::vector<size_t> order_of(const Goal& goal, const std::vector<RankedPlan>& judged, bool by_p95);

// Ranking::bound: the least of all micro-batch counts that are looked at. only_formulas: no cost is measured.
Result<std::optional<double>> bound_of_all(const RankContext& context, const Goal& goal,
                                           const std::vector<RankedPlan>& judged, bool only_formulas);

}  // namespace nlsplit::inline ranking
