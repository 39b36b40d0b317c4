#include "ranking/refine.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/cores.h"
#include "partition/anneal.h"
#include "partition/cuts.h"
#include "partition/split_shares.h"
#include "ranking/lowering_work.h"
#include "ranking/prompts.h"

namespace nlsplit::inline ranking {
namespace {

// The best of all are changed a little, so many times.
constexpr size_t refined_plans = 4, refining_steps = 400;
constexpr double worth_refining = 1.5;  // of plans with split stages: times the best score

struct Changed {
  Candidate candidate;
  Timed timed;
};

struct Changing {                     // all plans at once
  std::map<int, std::mutex> scoring;  // by micro-batches: of their scorers
  std::mutex mutex;                   // of what is below and progress
  size_t done = 0;
};

bool is_same(const Plan& a, const Plan& b) {
  return a.stages == b.stages && a.micro_batches == b.micro_batches && a.schedule == b.schedule;
}

bool may_refine(const RankContext& context) {
  const SearchOptions& search = context.scenario.search;
  const bool annealed = search.method == "anneal" && (search.layers || search.replicate);
  return context.splits_layers || (annealed && !context.scenario.training);
}

// The best of all, and the best that have a split stage unless they are far worse.
std::vector<Plan> plans_to_refine(const Scenario& scenario, const std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates[i].fast_score; });
  std::vector<Plan> starts;
  for (const bool split : {false, true}) {
    size_t taken = 0;
    for (const size_t i : order) {
      const Candidate& candidate = candidates[i];
      if (candidate.ranked.own || (split && !has_splits(candidate.ranked.plan))) continue;
      if (split && candidate.fast_score > worth_refining * candidates[order.front()].fast_score) break;
      if (std::ranges::find(starts, candidate.ranked.plan) == starts.end()) starts.push_back(candidate.ranked.plan);
      if (++taken == refined_plans / 2) break;
    }
  }
  // Whether stages recompute is decided for each change anew.
  if (scenario.training && scenario.training->recompute == Recompute::to_fit)
    for (Plan& start : starts)
      for (Stage& stage : start.stages) stage.recompute = false;
  return starts;
}

// All plans that changes may lead to.
AnnealSpace changed_plans(const Scenario& scenario, const PreparedModel& prepared, const SearchSpace& known) {
  const SearchOptions& search = scenario.search;
  const SearchCosts& costs = *known.costs;
  AnnealSpace space;
  space.graph = &prepared.kernels.graph;
  space.cuts = distinct_cuts(find_cuts(*space.graph), costs.node_seconds, costs.cut_bytes);
  for (const Device& device : scenario.cluster.devices) {
    if (std::ranges::find(known.no_room, device.name, &NoRoom::device) == known.no_room.end())
      space.devices.push_back(scenario.cluster.find_device(device.name));
  }
  space.max_devices = search.max_devices > 0 ? search.max_devices : scenario.cluster.devices.size();
  space.max_stages = search.max_stages > 0 ? search.max_stages : space.max_devices;
  if (!search.layers) space.max_stages = 1;
  space.replicate = search.replicate;
  space.class_of = known.class_of;
  space.axes = search.axes;
  space.micro_batches = scenario.micro_batches;
  space.shares = [&costs](const Stage& stage) { return shares_by_speed(costs, stage); };
  return space;
}

const Candidate* known_candidate(const std::vector<Candidate>& candidates, const Plan& plan) {
  const auto known = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return !candidate.ranked.own && is_same(candidate.ranked.plan, plan);
  });
  return known == candidates.end() ? nullptr : &*known;
}

// What search says of a plan; none if it scored none with so many micro-batches.
std::optional<ScoredPlan> scored_plan(const Scenario& scenario, const SearchSpace& space, const Plan& plan) {
  const auto scorer =
      std::ranges::find(space.scorers, plan.micro_batches, [](const auto& of) { return of->costs().micro_batches; });
  if (scorer == space.scorers.end()) return std::nullopt;
  ScoredPlan found = (*scorer)->score(plan.stages);
  const auto prompts = space.prompt_scorers.find(plan.micro_batches);
  return prompts == space.prompt_scorers.end() ? found
                                               : with_prompts(scenario, found, prompts->second->score(plan.stages));
}

// One plan, step by step. Several at once: each knows only the candidates there were before, so that the answer does
// not depend on who is first.
std::vector<Changed> change_plan(const RankContext& context, const SearchSpace& known, const FittingPlans& fitting,
                                 const Plan& start, const AnnealOptions& options, size_t most_layers, Changing& all) {
  const Scenario& scenario = context.scenario;
  std::vector<Changed> changed;
  size_t layers = 0;  // lowered for plans with splits
  AnnealSpace space = changed_plans(scenario, context.prepared.front(), known);
  std::optional<ScoredPlan> found;  // the search's score of the last plan
  Plan asked;
  const auto ask = [&](const Plan& plan) {
    if (is_same(plan, asked)) return;
    asked = plan;
    const std::lock_guard lock(all.scoring.at(plan.micro_batches));
    found = scored_plan(scenario, known, plan);
  };
  space.least_cost = [&](const Plan& plan) {
    if (interrupted(context.options) || layers > most_layers) return never;
    ask(plan);
    if (!found) return 0.0;
    if (too_much_work(context, *found, 0, 0)) return never;
    return scenario.objective == Objective::weighted ? 0 : fitting.pruning.least_score(*found);
  };
  space.cost = [&](const Plan& plan) {
    if (interrupted(context.options)) return never;
    if (const Candidate* candidate = known_candidate(fitting.candidates, plan)) return candidate->fast_score;
    Changed& next = changed.emplace_back();
    next.candidate.ranked.plan = plan;
    if (ask(plan); found) {
      layers += work_of(context, *found);
      next.candidate.bound = bound_of(scenario, *found);
    }
    next.timed = time_candidate(context, fitting.goal, next.candidate, fitting.kept.get());
    {
      const std::lock_guard lock(all.mutex);
      if (all.done++ % 16 == 0) progress(context.options, "changing the best plans", all.done, refining_steps);
    }
    return next.timed.estimate ? fast_score(scenario, fitting.goal, next.candidate, *next.timed.estimate) : never;
  };
  anneal(space, {start}, options);
  return changed;
}

// [start]
std::vector<std::vector<Changed>> change_plans(const RankContext& context, const SearchSpace& space,
                                               const FittingPlans& fitting) {
  const std::vector<Plan> starts = plans_to_refine(context.scenario, fitting.candidates);
  std::vector<std::vector<Changed>> changed(starts.size());
  Changing all;
  for (const PreparedModel& prepared : context.prepared) all.scoring[prepared.micro_batches];
  on_all_cores(
      starts.size(),
      [&](size_t k) {
        const size_t i = starts.size() - 1 - k;  // split stages take longest: no core is left with one of those alone
        const AnnealOptions options{.steps = refining_steps / starts.size(), .seed = context.scenario.search.seed + i};
        changed[i] =
            change_plan(context, space, fitting, starts[i], options, most_work(context.scenario) / starts.size(), all);
      },
      context.workers);
  return changed;
}

}  // namespace

Status refine(const RankContext& context, const SearchSpace& space, FittingPlans& fitting,
              std::vector<RankedBaseline>& baselines, Tally& tally) {
  if (!may_refine(context) || tally.interrupted) return ok_status();
  for (std::vector<Changed>& of_start : change_plans(context, space, fitting)) {
    for (auto& [candidate, timed] : of_start) {
      if (timed.recomputing) candidate.ranked.plan = *std::move(timed.recomputing);
      if (known_candidate(fitting.candidates, candidate.ranked.plan) != nullptr) continue;  // another start led there
      RETURN_IF_ERROR(note_timed(context, timed, candidate, baselines, tally));
      if (!timed.estimate) continue;
      set_scores(context.scenario, fitting.goal, *timed.estimate, candidate);
      candidate.lowered = std::move(timed.lowered);
      fitting.estimates.push_back(*timed.estimate);
      fitting.candidates.push_back(std::move(candidate));
    }
  }
  if (interrupted(context.options)) tally.interrupted = true;
  return ok_status();
}

}  // namespace nlsplit::inline ranking
