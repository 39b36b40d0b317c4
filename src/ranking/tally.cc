#include "ranking/tally.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nlsplit::inline ranking {
namespace {

Status count_own_trouble(const Scenario& scenario, const Candidate& candidate, const Error& error, Tally& tally) {
  const std::string& name = candidate.ranked.plan.name;
  const Error& first = tally.own_troubles.try_emplace(name, error).first->second;
  if (--tally.own_pairs[name] > 0) return ok_status();
  const auto at = std::ranges::find(scenario.plans, name, &UserPlan::name);
  CHECK(at != scenario.plans.end(), "a plan of one's own that the scenario has not");
  if (!first.fragment.empty()) return at_plan(*at, first);
  std::erase_if(tally.own_left_out, [&](const OwnLeftOut& other) { return other.name == name; });
  tally.own_refused.push_back({name, at_plan(*at, first)});
  return ok_status();
}

void count_own_misfit(const Misfit& misfit, const Plan& plan, std::vector<OwnMisfit>& misfits) {
  auto at = std::find_if(misfits.begin(), misfits.end(),
                         [&](const OwnMisfit& m) { return m.name == plan.name && m.device == misfit.device; });
  if (at == misfits.end()) {
    misfits.push_back({plan.name, {}, misfit.device, misfit.has, misfit.least_needed});
    at = misfits.end() - 1;
  }
  if (std::find(at->micro_batches.begin(), at->micro_batches.end(), plan.micro_batches) == at->micro_batches.end()) {
    at->micro_batches.push_back(plan.micro_batches);
  }
  at->least_needed = std::min(at->least_needed, misfit.least_needed);
}

}  // namespace

Status leave_out(const Scenario& scenario, const Candidate& candidate, const Error& error, Tally& tally) {
  if (!candidate.ranked.own) {
    if (tally.left_out++ == 0) tally.why_left_out = error.message;
    return ok_status();
  }
  const Plan& plan = candidate.ranked.plan;
  const std::string schedule = scenario.training ? plan.schedule : "";
  tally.own_left_out.push_back({plan.name, plan.micro_batches, schedule, error.message});
  return count_own_trouble(scenario, candidate, error, tally);
}

Status leave_out_unscheduled(const Scenario& scenario, const Candidate& candidate, const Error& error, Tally& tally) {
  if (tally.unscheduled++ == 0) tally.why_unscheduled = error.message;
  return candidate.ranked.own ? count_own_trouble(scenario, candidate, error, tally) : ok_status();
}

void count_misfit(const Misfit& misfit, const Candidate& candidate, Tally& tally) {
  auto at = std::ranges::find(tally.misfits, misfit.device, &Misfit::device);
  if (at == tally.misfits.end()) {
    tally.misfits.push_back({misfit.device, misfit.has, misfit.least_needed, 0});
    at = tally.misfits.end() - 1;
  }
  ++at->plans;
  at->least_needed = std::min(at->least_needed, misfit.least_needed);
  if (candidate.ranked.own) count_own_misfit(misfit, candidate.ranked.plan, tally.own_misfits);
}

Error nothing_fits(const Scenario& scenario, const Tally& tally) {
  if (tally.misfits.empty()) {
    if (tally.unscheduled + tally.left_out == 0 && !tally.own_refused.empty()) return tally.own_refused.front().error;
    Error error = unsupported(tally.unscheduled > 0 ? fmt::format("no plan can be scheduled: {}", tally.why_unscheduled)
                                                    : fmt::format("no plan can be lowered: {}", tally.why_left_out));
    error.where.file = scenario.file;
    return error;
  }
  std::string text = fmt::format("no plan fits in the devices' memory, of {} that were looked at:", tally.considered);
  for (const Misfit& misfit : tally.misfits) {
    text += fmt::format("\n  {} has {}, the smallest plan that uses it needs {}", misfit.device, to_string(misfit.has),
                        to_string(misfit.least_needed));
  }
  if (scenario.training && scenario.training->recompute == Recompute::none)
    text += "\n  with `recompute: to_fit` in the workload, stages without room compute their activations again";
  for (const OwnRefused& refused : tally.own_refused) text += fmt::format("\n  {}", to_string(refused));
  Error error = invalid_input(text);
  error.where.file = scenario.file;
  return error;
}

void report_tally(Tally tally, Ranking& ranking) {
  ranking.space = tally.space;
  ranking.considered = tally.considered;
  ranking.split_inside = tally.split_inside;
  ranking.untimed = tally.untimed;
  ranking.interrupted = tally.interrupted;
  ranking.misfits = std::move(tally.misfits);
  ranking.own_misfits = std::move(tally.own_misfits);
  ranking.own_left_out = std::move(tally.own_left_out);
  ranking.own_refused = std::move(tally.own_refused);
  ranking.unscheduled = tally.unscheduled;
  ranking.left_out = tally.left_out;
  ranking.why_unscheduled = std::move(tally.why_unscheduled);
  ranking.why_left_out = std::move(tally.why_left_out);
}

}  // namespace nlsplit::inline ranking
