#include "ranking/lowering_work.h"

#include <algorithm>
#include <vector>

namespace nlsplit::inline ranking {
namespace {

// What lowering may take: as much as of max_candidates plans of so many layers, each copy of a layer counted.
constexpr size_t layers_a_candidate = 600;
constexpr size_t layers_a_device = 40;  // what else lowering does for a device takes as long as so many layers
// Within stages that are split inside their layers: what expanding a node and lowering an instruction take.
constexpr double layers_an_inner_node = 10, layers_an_inner_instruction = 0.5;
constexpr size_t one_plan_part = 4;  // of that work, one such plan takes no more than this part

}  // namespace

size_t layers_lowered(const Plan& plan) {
  size_t layers = 0;
  for (const Stage& stage : plan.stages) layers += (stage.end - stage.begin + layers_a_device) * stage.devices.size();
  return layers;
}

size_t layers_lowered(const ScoredPlan& scored) {
  return layers_lowered(scored.plan) + static_cast<size_t>(layers_an_inner_node * scored.inner_nodes +
                                                           layers_an_inner_instruction * scored.inner_instructions);
}

// As much of the work as of the nodes is left in shorter networks.
size_t work_of(const RankContext& context, const ScoredPlan& scored) {
  const size_t whole = layers_lowered(scored);
  if (context.scenario.training && !has_splits(scored.plan)) return layers_of_a_step * whole;
  if (!context.shorter) return whole;
  const std::vector<ShorterPlan> plans = shorter_plans(scored.plan, context.shorter->repeat());
  if (plans.empty()) return whole;
  size_t left = 0;
  for (const ShorterPlan& shorter : plans) left += shorter.plan.stages.back().end;
  return std::min(whole, whole * left / scored.plan.stages.back().end);
}

size_t most_work(const Scenario& scenario) { return scenario.search.max_candidates * layers_a_candidate; }

bool too_much_work(const RankContext& context, const ScoredPlan& scored, size_t layers, size_t inside) {
  const size_t most = most_work(context.scenario);
  if (!has_splits(scored.plan)) return layers > most;
  return inside > most || work_of(context, scored) > most / one_plan_part;
}

}  // namespace nlsplit::inline ranking
