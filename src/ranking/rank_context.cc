#include "ranking/rank_context.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/cores.h"
#include "compile/split_training.h"

namespace nlsplit::inline ranking {
namespace {

// At least so many plans go from the fast tier to the one that judges, so that contention can still reorder the top.
constexpr size_t least_finalists = 40;

Status prepare_models(const std::vector<RankedPlan>& own, RankContext& context) {
  const Scenario& scenario = context.scenario;
  std::set<int> counts(scenario.micro_batches.begin(), scenario.micro_batches.end());
  for (const RankedPlan& plan : own) counts.insert(plan.plan.micro_batches);
  progress(context.options, "preparing the model", 0, counts.size());
  const std::vector<int> all(counts.begin(), counts.end());
  std::vector<std::optional<Result<PreparedModel>>> models(all.size());
  on_all_cores(
      all.size(), [&](size_t i) { models[i] = prepare_model(scenario, context.graph, all[i]); }, context.workers);
  for (std::optional<Result<PreparedModel>>& model : models) {
    ASSIGN_OR_RETURN(PreparedModel prepared, *std::move(model));
    context.prepared.push_back(std::move(prepared));
  }
  return ok_status();
}

void prepare_shorter_models(const std::vector<RankedPlan>& own, RankContext& context) {
  const Scenario& scenario = context.scenario;
  // Noise and error bars look at all a plan does.
  const bool times_only = !scenario.training && !scenario.noise && !context.wants_parts && context.options.samples == 0;
  const bool inside = !scenario.search.axes.empty() ||
                      std::ranges::any_of(own, [](const RankedPlan& plan) { return has_splits(plan.plan); });
  if (const std::optional<Repeat> repeat = times_only && inside ? longest_repeat(context.graph) : std::nullopt)
    context.shorter = std::make_unique<ShorterModels>(scenario, context.graph, *repeat);
}

// What training refuses of a plan that splits layers is no reason to refuse all others.
void see_whether_layers_may_be_split(RankContext& context) {
  const Scenario& scenario = context.scenario;
  context.splits_layers = !scenario.search.axes.empty();
  if (!context.splits_layers || !scenario.training) return;
  const KernelGraph& kernels = context.prepared.front().kernels;
  if (const Status allowed =
          check_split_training(kernels.graph, kernels.training->options.batch_norm, scenario.zero, scenario.exact);
      !allowed.ok())
    context.why_not_inside = allowed.error().message;
  context.splits_layers = context.why_not_inside.empty();
}

Status prepare_generations(RankContext& context) {
  for (const PreparedModel& prepared : context.prepared) {
    const int count = prepared.micro_batches;
    ASSIGN_OR_RETURN(context.generations[count], prepare_generation(context.scenario, context.graph, count, nullptr));
  }
  const auto one = context.generations.find(1);
  if (!context.shorter || one == context.generations.end()) return ok_status();
  auto shorter = std::make_unique<ShorterGenerations>(context.scenario, one->second, context.shorter->repeat());
  if (!shorter->exist()) return ok_status();
  if (one->second.prefill)
    context.shorter_prompts = std::make_unique<ShorterModels>(context.scenario, one->second.prefill->kernels.graph,
                                                              shorter->repeat_of_prompts().value());
  context.shorter_generations = std::move(shorter);
  return ok_status();
}

}  // namespace

Result<RankContext> rank_context(const Scenario& scenario, const Graph& graph, const RankOptions& options,
                                 const std::vector<RankedPlan>& own, bool wants_parts) {
  RankContext context{
      .scenario = scenario, .graph = graph, .options = options, .costs = cost_table(scenario, graph.name)};
  context.workers = options.workers > 0 ? options.workers : core_count();
  context.finalists = std::max(least_finalists, static_cast<size_t>(scenario.keep) * 2);
  context.wants_parts = wants_parts;
  if (scenario.noise) context.noise_bound.emplace(scenario);
  RETURN_IF_ERROR(prepare_models(own, context));
  prepare_shorter_models(own, context);
  see_whether_layers_may_be_split(context);
  if (scenario.generation) RETURN_IF_ERROR(prepare_generations(context));
  return context;
}

bool interrupted(const RankOptions& options) { return options.interrupted && options.interrupted(); }

void progress(const RankOptions& options, std::string_view phase, size_t done, size_t total) {
  if (options.progress) options.progress(phase, done, total);
}

HostId results_host(const Scenario& scenario) {
  return scenario.training ? scenario.endpoints.source : scenario.endpoints.sink;
}

double bound_of(const Scenario& scenario, const ScoredPlan& scored) {
  // The next token of a micro-batch waits for the others at the busiest device.
  if (scenario.generation) return std::max(scored.latency_seconds, scored.busiest_seconds);
  return scenario.objective == Objective::latency ? scored.latency_seconds : scored.bound_seconds;
}

bool wants_noise(const RankContext& context) {
  return context.scenario.noise && (context.options.noise || context.options.robust);
}

bool may_keep_digest(const RankContext& context, const Plan& plan) {
  return !wants_noise(context) && !context.wants_parts && !has_splits(plan);
}

bool prompts_matter(const RankContext& context) {
  if (context.generations.empty() || !context.generations.begin()->second.prefill) return false;
  const Generation& of = *context.scenario.generation;
  return of.objective != GenerationObjective::tpot || of.require.ttft_s || of.require.tokens_per_second;
}

Result<LoweredPlan> lower(const RankContext& context, const Plan& plan) {
  if (context.shorter) {
    if (const std::vector<ShorterPlan> plans = shorter_plans(plan, context.shorter->repeat()); !plans.empty())
      return lower_shorter(context.scenario, plans, *context.shorter, context.costs);
  }
  return lower_plan(context.scenario, prepared_for(context.prepared, plan.micro_batches), plan, context.costs);
}

size_t networks_of(const RankContext& context, const Plan& plan) {
  return context.shorter ? std::max<size_t>(1, shorter_plans(plan, context.shorter->repeat()).size()) : 1;
}

Result<LoweredPlan> lower_prompts(const RankContext& context, const Plan& plan) {
  const GenerationModels& models = context.generations.at(plan.micro_batches);
  ASSIGN_OR_RETURN(const Plan same, plan_of_prompts(models, plan));
  if (context.shorter_prompts) {
    if (const std::vector<ShorterPlan> plans = shorter_plans(same, context.shorter_prompts->repeat()); !plans.empty())
      return lower_shorter(context.scenario, plans, *context.shorter_prompts, context.costs);
  }
  return lower_plan(context.scenario, *models.prefill, same, context.costs);
}

}  // namespace nlsplit::inline ranking
