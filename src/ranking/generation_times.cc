#include "ranking/generation_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/cores.h"
#include "ranking/generation.h"
#include "ranking/longer_contexts.h"
#include "ranking/prefill_plans.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t sessions_a_core = 4;  // compiled before they are simulated

// Of the device that needs the most. Error: it is more than a device has.
Status find_fullest(const Session& session, const std::vector<DeviceNeeds>& needed, GenerationTimes& times) {
  const std::vector<DeviceProgram>& devices = session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (needed[d].kind == DeviceKind::host) continue;
    if (needed[d].arena > needed[d].memory)
      return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", devices[d].name,
                                       to_string(needed[d].memory), to_string(needed[d].arena)));
    if (needed[d].arena <= times.fullest_memory) continue;
    times.fullest_device = devices[d].name;
    times.fullest_memory = needed[d].arena;
  }
  return ok_status();
}

// Sets their times, or why they have none. needs: gets what each needs.
Status time_some(const RankContext& context, std::span<RankedPlan> plans, std::span<std::vector<DeviceNeeds>> needs) {
  const Scenario& scenario = context.scenario;
  std::vector<std::vector<PlanPart>> parts(plans.size());
  std::vector<Status> fits(plans.size(), ok_status());
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        const Plan& plan = plans[i].plan;
        auto made = parts_of(context.generations.at(plan.micro_batches), context.shorter_generations.get(), plan);
        if (made)
          parts[i] = *std::move(made);
        else
          fits[i] = Status(made.error());
      },
      context.workers);
  const auto compiled = of_all_parts<Result<CompiledSession>>(
      parts, context.workers,
      [&](size_t, const PlanPart& part) { return generation_session(scenario, *part.models, part.plan); });
  std::vector<GenerationTimes> all(plans.size());
  std::vector<TimedSession> sessions;
  for (size_t i = 0; i < plans.size(); ++i) {
    std::vector<std::vector<DeviceNeeds>> of_parts;
    for (const Result<CompiledSession>& one : compiled[i]) {
      if (one.ok())
        of_parts.push_back(needs_of(one.value().session));
      else if (fits[i].ok())
        fits[i] = Status(one.error());
    }
    if (fits[i].ok()) {
      needs[i] = whole_needs(parts[i], of_parts);
      fits[i] = find_fullest(compiled[i][0].value().session, needs[i], all[i]);
    }
    if (!fits[i].ok()) {
      plans[i].why_not = fits[i].error().message;
      continue;
    }
    const bool alone = compiled[i].size() == 1;
    for (const Result<CompiledSession>& one : compiled[i]) sessions.push_back({&one.value().session, alone});
  }
  ASSIGN_OR_RETURN(const std::vector<GenerationTimes> times,
                   time_generation(scenario, sessions, *context.options.tier, context.workers));
  size_t next = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!fits[i].ok()) continue;
    all[i].first_token_s = weighted_sum(parts[i], [&](size_t k) { return times[next + k].first_token_s; });
    all[i].next_token_s = weighted_sum(parts[i], [&](size_t k) { return times[next + k].next_token_s; });
    all[i].tokens_per_s = tokens_per_s(scenario, all[i]);
    plans[i].generation = all[i];
    next += parts[i].size();
  }
  return ok_status();
}

// Those that have not been timed. Some at a time: sessions of a large model take tens of megabytes each.
Status time_judged(const RankContext& context, JudgedPlans& judged) {
  const size_t all = judged.ranked.size();
  size_t begin = judged.needs.size();
  judged.needs.resize(all);
  while (begin < all) {
    progress(context.options, "timing prompts and tokens", begin, all);
    const size_t count = std::min(all - begin, sessions_a_core * context.workers);
    RETURN_IF_ERROR(time_some(context, std::span(judged.ranked).subspan(begin, count),
                              std::span(judged.needs).subspan(begin, count)));
    begin += count;
  }
  return ok_status();
}

// Behind the others that are judged.
Status judge_plans_with_prefill(const RankContext& context, const std::vector<double>& node_shares, JudgedPlans& judged,
                                Tally& tally) {
  std::vector<Candidate> candidates;
  for (Plan& plan : plans_with_prefill(context, judged.ranked, node_shares)) {
    Candidate& candidate = candidates.emplace_back();
    candidate.ranked.plan = std::move(plan);
    candidate.must_judge = true;
  }
  if (candidates.empty()) return ok_status();
  tally.considered += candidates.size();
  tally.space += static_cast<double>(candidates.size());
  RETURN_IF_ERROR(judge(context, std::move(candidates), judged, tally));
  return time_judged(context, judged);
}

// By their times; those that miss something by how far; those that cannot run last.
void sort_by_times(const Scenario& scenario, JudgedPlans& judged) {
  const auto cost = [&](size_t i) {
    const auto& times = judged.ranked[i].generation;
    return times ? cost_of(scenario, *times) : never;
  };
  const auto fullest = [&](size_t i) {
    const auto& times = judged.ranked[i].generation;
    if (!times) return 1.0;
    return times->fullest_memory / scenario.cluster.device(scenario.cluster.find_device(times->fullest_device)).memory;
  };
  sort_judged_by(cost, fullest, judged);
  const auto miss = [&](size_t i) {
    double farthest = judged.ranked[i].generation ? 1 : never;
    for (const Miss& one : judged.ranked[i].misses) farthest = std::max(farthest, one.times);
    return farthest;
  };
  std::vector<size_t> order(judged.ranked.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, miss);
  arrange_judged(order, judged);
}

}  // namespace

Status judge_generations(const RankContext& context, const std::vector<double>& node_shares, JudgedPlans& judged,
                         Tally& tally) {
  const Scenario& scenario = context.scenario;
  std::vector<std::unique_ptr<LongerContext>> longer;
  if (scenario.generation->require.context) longer = longer_contexts(context);
  RETURN_IF_ERROR(time_judged(context, judged));
  RETURN_IF_ERROR(judge_plans_with_prefill(context, node_shares, judged, tally));
  if (scenario.generation->require.context) {
    std::vector<size_t> timed;
    for (size_t i = 0; i < judged.ranked.size(); ++i) {
      if (judged.ranked[i].generation) timed.push_back(i);
    }
    find_largest_contexts(context, longer, judged.needs, timed, judged.ranked);
  }
  for (RankedPlan& plan : judged.ranked) {
    if (plan.generation) plan.misses = misses_of(scenario, *plan.generation);
  }
  sort_by_times(scenario, judged);
  return ok_status();
}

}  // namespace nlsplit::inline ranking
