#include "ranking/judge_baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "partition/baselines.h"
#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {
namespace {

struct Chosen {
  RankedBaseline ranked;
  LoweredPlan lowered;
  double score = std::numeric_limits<double>::infinity();  // by the fast tier
};

void consider(const Scenario& scenario, const PreparedModel& prepared, const CostTable& costs, const Goal& goal,
              Plan plan, Chosen& chosen) {
  auto lowered = lower_plan(scenario, prepared, plan, costs);
  if (!lowered || lowered->too_large != nullptr) {
    if (!chosen.ranked.why_not.empty()) return;  // the first reason will do
    chosen.ranked.plan = std::move(plan);
    chosen.ranked.why_not =
        lowered ? fmt::format("{} has {} and would need {}", lowered->too_large->name,
                              to_string(lowered->too_large->memory), to_string(lowered->too_large->arena))
                : lowered.error().message;
    return;
  }
  const double score = score_of(goal, estimate_fast(scenario, *lowered));
  if (score >= chosen.score) return;
  chosen.score = score;
  chosen.ranked.plan = std::move(plan);
  chosen.lowered = std::move(*lowered);
}

}  // namespace

Result<std::vector<RankedBaseline>> judge_baselines(const Scenario& scenario, const Graph& graph,
                                                    const std::vector<PreparedModel>& prepared, const CostTable& costs,
                                                    const Goal& goal, const RankOptions& options) {
  std::vector<Chosen> all;
  for (const Baseline& baseline : baselines()) {
    Chosen& chosen = all.emplace_back();
    chosen.ranked.name = baseline.name;
    chosen.ranked.rule = baseline.rule;
  }
  size_t done = 0;
  for (const int count : scenario.micro_batches) {
    if (options.interrupted && options.interrupted()) break;
    if (options.progress) options.progress("what today's rules choose", done++, scenario.micro_batches.size());
    const auto at = std::ranges::find(prepared, count, &PreparedModel::micro_batches);
    CHECK(at != prepared.end(), "a micro-batch count nobody prepared");
    ASSIGN_OR_RETURN(const SearchCosts seconds, search_costs(scenario, *at, costs));
    for (size_t b = 0; b < all.size(); ++b) {
      const std::vector<Stage> stages = baselines()[b].stages(at->kernels.graph, scenario.cluster, seconds);
      if (stages.empty()) {
        all[b].ranked.why_not = baselines()[b].why_none;
        continue;
      }
      for (const std::string& schedule : scenario.schedules)
        consider(scenario, *at, costs, goal, {"", stages, count, schedule}, all[b]);
    }
  }
  std::vector<Chosen*> running;
  for (Chosen& chosen : all) {
    if (!chosen.ranked.plan.stages.empty()) chosen.ranked.text = to_string(chosen.ranked.plan, graph, scenario.cluster);
    if (chosen.score < std::numeric_limits<double>::infinity()) running.push_back(&chosen);
  }
  RETURN_IF_ERROR(options.tier->simulate_each(
      running.size(),
      [&](size_t i) {
        return Simulation{&running[i]->lowered.timed, &scenario.cluster};
      },
      [&](size_t i, const Timing& timing) {
        running[i]->ranked.estimate = estimate_of(scenario, running[i]->lowered, timing);
        running[i]->ranked.why_not.clear();
        return true;
      }));
  std::vector<RankedBaseline> ranked;
  for (Chosen& chosen : all) ranked.push_back(std::move(chosen.ranked));
  return ranked;
}

}  // namespace nlsplit::inline ranking
