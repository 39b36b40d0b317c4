// Small changes to the best plans, each timed by the fast tier: split stages, their shares and where they end are too
// many to list.
#include <algorithm>
#include <numeric>

#include "base/cores.h"
#include "partition/anneal.h"
#include "partition/cuts.h"
#include "partition/split_shares.h"
#include "ranking/ranker.h"

namespace nlsplit::inline ranking {
namespace {

// The best of all are changed a little, so many times.
constexpr size_t refined_plans = 4, refining_steps = 400;
constexpr double worth_refining = 1.5;  // of plans with split stages: times the best score

bool is_same(const Plan& a, const Plan& b) {
  return a.stages == b.stages && a.micro_batches == b.micro_batches && a.schedule == b.schedule;
}

}  // namespace

bool Ranker::may_refine() const {
  const SearchOptions& search = scenario_.search;
  const bool annealed = search.method == "anneal" && (search.layers || search.replicate);
  return inside_ || (annealed && !scenario_.training);
}

// The best of all, and the best that have a split stage unless they are far worse.
std::vector<Plan> Ranker::plans_to_refine() const {
  std::vector<size_t> order(candidates_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates_[i].fast_score; });
  std::vector<Plan> starts;
  for (const bool split : {false, true}) {
    size_t taken = 0;
    for (const size_t i : order) {
      const Candidate& candidate = candidates_[i];
      if (candidate.ranked.own || (split && !has_splits(candidate.ranked.plan))) continue;
      if (split && candidate.fast_score > worth_refining * candidates_[order.front()].fast_score) break;
      if (std::ranges::find(starts, candidate.ranked.plan) == starts.end()) starts.push_back(candidate.ranked.plan);
      if (++taken == refined_plans / 2) break;
    }
  }
  // Whether stages recompute is decided for each change anew.
  if (scenario_.training && scenario_.training->recompute == Recompute::to_fit)
    for (Plan& start : starts)
      for (Stage& stage : start.stages) stage.recompute = false;
  return starts;
}

// All plans that changes may lead to.
AnnealSpace Ranker::changed_plans() const {
  const SearchOptions& search = scenario_.search;
  const SearchCosts& costs = *first_costs_;
  AnnealSpace space;
  space.graph = &prepared_.front().kernels.graph;
  space.cuts = distinct_cuts(find_cuts(*space.graph), costs.node_seconds, costs.cut_bytes);
  for (const Device& device : scenario_.cluster.devices) {
    if (std::ranges::find(ranking_.no_room, device.name, &NoRoom::device) == ranking_.no_room.end())
      space.devices.push_back(scenario_.cluster.find_device(device.name));
  }
  space.max_devices = search.max_devices > 0 ? search.max_devices : scenario_.cluster.devices.size();
  space.max_stages = search.max_stages > 0 ? search.max_stages : space.max_devices;
  if (!search.layers) space.max_stages = 1;
  space.replicate = search.replicate;
  space.class_of = class_of_;
  space.axes = search.axes;
  space.micro_batches = scenario_.micro_batches;
  space.shares = [&costs](const Stage& stage) { return shares_by_speed(costs, stage); };
  return space;
}

const Candidate* Ranker::known_candidate(const Plan& plan) const {
  const auto known = std::ranges::find_if(candidates_, [&](const Candidate& candidate) {
    return !candidate.ranked.own && is_same(candidate.ranked.plan, plan);
  });
  return known == candidates_.end() ? nullptr : &*known;
}

// What search says of a plan; none if it scored none with so many micro-batches.
std::optional<ScoredPlan> Ranker::scored(const Plan& plan) const {
  const auto scorer =
      std::ranges::find(scorers_, plan.micro_batches, [](const auto& of) { return of->costs().micro_batches; });
  if (scorer == scorers_.end()) return std::nullopt;
  ScoredPlan found = (*scorer)->score(plan.stages);
  const auto prompts = prompt_scorers_.find(plan.micro_batches);
  return prompts == prompt_scorers_.end() ? found : with_prompts(found, prompts->second->score(plan.stages));
}

// One plan, step by step. Several at once: each knows only the candidates there were before, so that the answer does
// not depend on who is first.
std::vector<Ranker::Changed> Ranker::change(const Plan& start, const AnnealOptions& options, size_t most_layers,
                                            const Pruning& pruning, Changing& all) const {
  std::vector<Changed> changed;
  size_t layers = 0;  // lowered for plans with splits
  AnnealSpace space = changed_plans();
  std::optional<ScoredPlan> found;  // the search's score of the last plan
  Plan asked;
  const auto ask = [&](const Plan& plan) {
    if (is_same(plan, asked)) return;
    asked = plan;
    const std::lock_guard lock(all.scoring.at(plan.micro_batches));
    found = scored(plan);
  };
  space.least_cost = [&](const Plan& plan) {
    if (interrupted() || layers > most_layers) return never;
    ask(plan);
    if (!found) return 0.0;
    if (too_much_work(*found, 0, 0)) return never;
    return scenario_.objective == Objective::weighted ? 0 : pruning.least_score(*found);
  };
  space.cost = [&](const Plan& plan) {
    if (interrupted()) return never;
    if (const Candidate* known = known_candidate(plan)) return known->fast_score;
    Changed& next = changed.emplace_back();
    next.candidate.ranked.plan = plan;
    if (ask(plan); found) {
      layers += work_of(*found);
      next.candidate.bound = bound_of(*found);
    }
    next.timed = time(next.candidate);
    {
      const std::lock_guard lock(all.mutex);
      if (all.done++ % 16 == 0) progress("changing the best plans", all.done, refining_steps);
    }
    return next.timed.estimate ? fast_score(next.candidate, *next.timed.estimate) : never;
  };
  anneal(space, {start}, options);
  return changed;
}

Status Ranker::refine(std::vector<Estimate>& estimates, const Pruning& pruning) {
  const std::vector<Plan> starts = plans_to_refine();
  std::vector<std::vector<Changed>> changed(starts.size());
  Changing all;
  for (const PreparedModel& prepared : prepared_) all.scoring[prepared.micro_batches];
  on_all_cores(
      starts.size(),
      [&](size_t k) {
        const size_t i = starts.size() - 1 - k;  // split stages take longest: no core is left with one of those alone
        const AnnealOptions options{.steps = refining_steps / starts.size(), .seed = scenario_.search.seed + i};
        changed[i] = change(starts[i], options, most_work() / starts.size(), pruning, all);
      },
      workers());
  for (std::vector<Changed>& of_start : changed) {
    for (Changed& next : of_start) {
      if (next.timed.recomputing) next.candidate.ranked.plan = *std::move(next.timed.recomputing);
      if (known_candidate(next.candidate.ranked.plan) != nullptr) continue;  // another start led there too
      RETURN_IF_ERROR(note(next.candidate, next.timed));
      if (!next.timed.estimate) continue;
      score(next.candidate, *next.timed.estimate);
      next.candidate.lowered = std::move(next.timed.lowered);
      estimates.push_back(*next.timed.estimate);
      candidates_.push_back(std::move(next.candidate));
    }
  }
  if (interrupted()) ranking_.interrupted = true;
  return ok_status();
}

}  // namespace nlsplit::inline ranking
