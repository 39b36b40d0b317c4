#include "ranking/fast_tier.h"

#include <algorithm>
#include <utility>

#include "ranking/baseline_plans.h"
#include "ranking/prompts.h"
#include "schedule/schedules.h"

namespace nlsplit::inline ranking {
namespace {

// The plan without the devices that have nothing to do, which is as good. None: all have.
std::optional<Plan> plan_without_idle(const Cluster& cluster, const Plan& plan, const LoweredPlan& lowered) {
  Plan rest = plan;
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    const DeviceProgram& device = lowered.program.devices[d];
    if (device.kind == DeviceKind::host || lowered.load.device_seconds[d] > 0) continue;
    const DeviceId id = cluster.find_device(device.name);
    for (Stage& stage : rest.stages) {
      if (!stage.split && stage.devices.size() > 1) std::erase(stage.devices, id);
    }
  }
  return rest == plan ? std::nullopt : std::optional(std::move(rest));
}

// timed: of a token. Its estimate becomes what the cost is made of.
void add_prompts(const RankContext& context, const Plan& plan, Timed& timed) {
  auto lowered = lower_prompts(context, plan);
  if (!lowered) {
    timed.trouble = lowered.error();
    timed.estimate.reset();
    return;
  }
  if (const DeviceProgram* device = lowered->too_large; device != nullptr) {
    timed.too_large = Misfit{device->name, device->memory, device->arena, 1};
    timed.estimate.reset();
    return;
  }
  const Estimate prompts = estimate_fast(context.scenario, *lowered);
  timed.token_s = timed.estimate->makespan_s;
  timed.prompt_s = prompts.makespan_s;
  timed.estimate = with_prompts(context.scenario, *timed.estimate, prompts);
}

// If its score is among the best so far.
KeptPlan keep(const RankContext& context, const Plan& plan, double score, LoweredPlan lowered, KeptPlans& kept) {
  if (!kept.wants(score)) return nullptr;
  if (may_keep_digest(context, plan)) keep_digest(lowered);
  return kept.keep(score, std::move(lowered));
}

// A plan for which its schedule does not exist is left out, unless the user gave exactly this pair.
bool has_no_schedule(const RankContext& context, const Candidate& candidate, const Error& error) {
  const Scenario& scenario = context.scenario;
  if (!scenario.training) return false;
  const Plan& plan = candidate.ranked.plan;
  const bool asked_for = candidate.ranked.own && std::ranges::any_of(scenario.plans, [&](const UserPlan& own) {
                           return own.name == plan.name && own.schedule == plan.schedule;
                         });
  if (asked_for) return false;
  if (error.kind == ErrorKind::unsupported) return true;
  const auto input = schedule_input(prepared_for(context.prepared, plan.micro_batches).kernels, plan, scenario.cluster,
                                    &context.costs);
  return input.ok() && !make_schedule(plan.schedule, *input).ok();
}

Status note_trouble(const RankContext& context, const Error& trouble, const Candidate& candidate, Tally& tally) {
  if (has_splits(candidate.ranked.plan)) return leave_out(context.scenario, candidate, trouble, tally);
  if (has_no_schedule(context, candidate, trouble))
    return leave_out_unscheduled(context.scenario, candidate, trouble, tally);
  const bool refused = candidate.ranked.own && trouble.kind == ErrorKind::unsupported;
  return refused ? leave_out(context.scenario, candidate, trouble, tally) : trouble;
}

}  // namespace

Timed time_candidate(const RankContext& context, const Goal& goal, const Candidate& candidate, KeptPlans* kept) {
  const Scenario& scenario = context.scenario;
  Plan plan = candidate.ranked.plan;
  Timed timed;
  auto lowered = lower_to_fit(scenario, plan, [&](const Plan& with) { return lower(context, with); });
  if (plan != candidate.ranked.plan) timed.recomputing = plan;
  if (!lowered) {
    timed.trouble = lowered.error();
  } else if (const DeviceProgram* device = lowered->too_large; device != nullptr) {
    timed.too_large = Misfit{device->name, device->memory, device->arena, 1};
  } else {
    timed.estimate = estimate_fast(scenario, *lowered);
    if (!candidate.ranked.own && candidate.baselines == 0)
      timed.without_idle = plan_without_idle(scenario.cluster, plan, *lowered);
    if (prompts_matter(context)) add_prompts(context, plan, timed);
    if (!timed.estimate) return timed;  // its prompts do not fit, or cannot be lowered
    if (context.noise_bound) timed.noise_factor = context.noise_bound->factor(*lowered, timed.estimate->makespan_s);
    if (kept != nullptr)
      timed.lowered =
          keep(context, plan, fast_score(scenario, goal, candidate, *timed.estimate), *std::move(lowered), *kept);
  }
  return timed;
}

Status note_timed(const RankContext& context, const Timed& timed, Candidate& candidate,
                  std::vector<RankedBaseline>& baselines, Tally& tally) {
  if (!timed.estimate) note_not_timed(candidate, timed.trouble, timed.too_large, baselines);
  if (timed.trouble) return note_trouble(context, *timed.trouble, candidate, tally);
  ++tally.considered;
  if (has_splits(candidate.ranked.plan)) ++tally.split_inside;
  if (timed.too_large) count_misfit(*timed.too_large, candidate, tally);
  candidate.noise_factor = timed.noise_factor;
  candidate.prompt_s = timed.prompt_s;
  candidate.token_s = timed.token_s;
  return ok_status();
}

double fast_score(const Scenario& scenario, const Goal& goal, const Candidate& candidate, const Estimate& estimate) {
  double score = score_of(goal, estimate);
  if (scenario.generation)
    score = std::max(score, estimate.makespan_s * std::max(estimate.busiest_device_share, estimate.busiest_link_share));
  // Messages within a split stage hinder each other, as do those of replicas that reduce gradients. This tier does not
  // see it. Of training with splits inside layers search says no lower bound: gradients by weights may be put off.
  if (has_splits(candidate.ranked.plan) != scenario.training.has_value() && scenario.objective != Objective::weighted)
    return std::max(score, candidate.bound);
  return score;
}

void set_scores(const Scenario& scenario, const Goal& goal, const Estimate& estimate, Candidate& candidate) {
  candidate.fast_score = fast_score(scenario, goal, candidate, estimate);
  candidate.noisy_score = candidate.fast_score * candidate.noise_factor;
}

}  // namespace nlsplit::inline ranking
