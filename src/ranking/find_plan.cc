// What users ask of a ranking: a plan by its number or name, those they want to see, why one of theirs is not there.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "ranking/alike.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

std::string to_string(const OwnMisfit& misfit) {
  std::string counts;
  for (size_t i = 0; i < misfit.micro_batches.size(); ++i) {
    counts += i == 0 ? "" : i + 1 == misfit.micro_batches.size() ? " or " : ", ";
    counts += fmt::format("{}", misfit.micro_batches[i]);
  }
  return fmt::format("{} does not fit in {} micro-batch{}: {} has {} and would need {}{}", misfit.name, counts,
                     counts == "1" ? "" : "es", misfit.device, to_string(misfit.has), to_string(misfit.least_needed),
                     misfit.micro_batches.size() > 1 ? " or more" : "");
}

std::string to_string(const OwnLeftOut& left_out) {
  return fmt::format("{} cannot be run in {} micro-batch{}{}{}: {}", left_out.name, left_out.micro_batches,
                     left_out.micro_batches == 1 ? "" : "es", left_out.schedule.empty() ? "" : " under ",
                     left_out.schedule, left_out.why);
}

std::string to_string(const OwnRefused& refused) {
  return fmt::format("{} cannot be run: {}", refused.name, refused.error.message);
}

Result<RankedPlan> find_plan(const Ranking& ranking, const std::string& which) {
  size_t number = 0;
  const auto [end, failure] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (failure == std::errc() && end == which.data() + which.size()) {
    if (number >= 1 && number <= ranking.judged.size()) return ranking.judged[number - 1];
    return invalid_input(fmt::format("there is no plan {}; the ranking has 1 … {}", which, ranking.judged.size()));
  }
  for (const OwnRefused& refused : ranking.own_refused) {
    if (refused.name == which) return refused.error;
  }
  if (ranking.judged.empty()) return invalid_input("the ranking is empty");
  for (const OwnMisfit& misfit : ranking.own_misfits) {
    const bool fits = std::any_of(ranking.judged.begin(), ranking.judged.end(),
                                  [&](const RankedPlan& p) { return p.own && p.plan.name == misfit.name; });
    if (!fits && misfit.name == which) return invalid_input("plan " + to_string(misfit));
  }
  std::string names;
  std::set<std::string> listed;
  for (const RankedPlan& plan : ranking.judged) {
    if (!plan.own) continue;
    if (plan.plan.name == which) return plan;
    if (!listed.insert(plan.plan.name).second) continue;
    names += (names.empty() ? "" : ", ") + plan.plan.name;
  }
  // One of the scenario's own may be among them.
  const std::string left_out =
      ranking.unscheduled == 0
          ? ""
          : fmt::format(" ({} left out, the first because: {})",
                        ranking.unscheduled == 1 ? "a plan was" : fmt::format("{} plans were", ranking.unscheduled),
                        ranking.why_unscheduled);
  return invalid_input(fmt::format("there is no plan called {}; take a number 1 … {}{}{}", which, ranking.judged.size(),
                                   names.empty() ? "" : " or one of " + names, left_out));
}

namespace {

// Two stages that differ in their devices and shares at most.
bool are_of_one_kind(const Stage& s, const Stage& t) {
  return s.end == t.end && s.recompute == t.recompute && s.split.has_value() == t.split.has_value() &&
         (!s.split || (s.split->axis == t.split->axis && s.split->recompute_halo == t.split->recompute_halo &&
                       s.split->shares.size() == t.split->shares.size()));
}

// Plans of two names that are one: shares that round to the same samples or rows; schedules that give each device the
// same slots in the same order; devices that have nothing to do.
bool are_same(const RankedPlan& a, const RankedPlan& b) {
  const Estimate &x = a.estimate, &y = b.estimate;
  if (x.makespan_s != y.makespan_s || x.latency_mean_s != y.latency_mean_s || x.largest_memory != y.largest_memory ||
      a.plan.micro_batches != b.plan.micro_batches || a.plan.prefill != b.plan.prefill)
    return false;
  if (!std::ranges::equal(a.plan.stages, b.plan.stages, are_of_one_kind)) return false;
  if (a.slots != 0 && b.slots != 0) return a.slots == b.slots;
  return a.plan.schedule == b.plan.schedule &&
         std::ranges::equal(a.plan.stages, b.plan.stages, {}, &Stage::devices, &Stage::devices);
}

}  // namespace

std::vector<size_t> kept(const Ranking& ranking) {
  std::vector<size_t> plans;
  for (const size_t i : ranking.order) {
    if (plans.size() >= ranking.keep) break;
    const RankedPlan& ranked = ranking.judged[i];
    const bool seen = !ranked.own && std::ranges::any_of(plans, [&](size_t other) {
      const RankedPlan& better = ranking.judged[other];
      return !better.own && ((are_alike(ranked.plan, better.plan, ranking.node_shares) &&
                              cost_of(ranking, ranked.estimate) < clearly_faster * cost_of(ranking, better.estimate)) ||
                             are_same(ranked, better));
    });
    if (!seen) plans.push_back(i);
  }
  return plans;
}

const Yardsticks& of_objective(const Ranking& ranking) {
  const Verdict& verdict = ranking.verdict;
  if (!ranking.generates) return ranking.objective == Objective::latency ? verdict.latency : verdict.throughput;
  switch (ranking.generation_objective) {
    case GenerationObjective::tokens_per_second:
      return verdict.throughput;
    case GenerationObjective::tpot:
      return verdict.latency;
    case GenerationObjective::ttft:
      return verdict.first_token;
  }
  CHECK(false, "unknown objective");
}

std::vector<size_t> shown(const Ranking& ranking) {
  const std::vector<size_t> top = kept(ranking);
  const Yardsticks& rivals = of_objective(ranking);
  std::vector<size_t> plans;
  std::set<std::string> own;
  for (const size_t i : ranking.order) {
    const RankedPlan& ranked = ranking.judged[i];
    const bool first_own = ranked.own && own.insert(ranked.plan.name).second;
    const bool to_measure =
        ranking.confidence && std::ranges::find(ranking.confidence->set, i) != ranking.confidence->set.end();
    if (first_own || to_measure || rivals.single == i || rivals.copies == i || std::ranges::find(top, i) != top.end())
      plans.push_back(i);
  }
  return plans;
}

std::vector<size_t> told(const Ranking& ranking) {
  const std::vector<size_t> top = kept(ranking);
  std::set<size_t> plans(top.begin(), top.end());
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    if (ranking.judged[i].own) plans.insert(i);
  }
  if (ranking.confidence) plans.insert(ranking.confidence->set.begin(), ranking.confidence->set.end());
  for (const Yardsticks& best : {ranking.verdict.throughput, ranking.verdict.latency, ranking.verdict.memory}) {
    for (const auto& index : {best.split, best.single, best.copies}) {
      if (index) plans.insert(*index);
    }
  }
  std::vector<size_t> ordered;
  std::ranges::copy_if(ranking.order, std::back_inserter(ordered), [&](size_t i) { return plans.contains(i); });
  return ordered;
}

}  // namespace nlsplit::inline ranking
