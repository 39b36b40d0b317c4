#include "ranking/own_plan.h"

#include <algorithm>
#include <map>

#include "program/verify.h"
#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {
namespace {

std::optional<Error> trouble_of(const Scenario& scenario, const PreparedModel& prepared, Plan plan,
                                const CostTable& costs) {
  auto lowered =
      lower_to_fit(scenario, plan, [&](const Plan& with) { return lower_plan(scenario, prepared, with, costs); });
  if (!lowered) return lowered.error();
  if (const DeviceProgram* device = lowered->too_large) {
    const OwnMisfit misfit{plan.name, {plan.micro_batches}, device->name, device->memory, device->arena};
    return invalid_input("plan " + to_string(misfit));
  }
  if (const Status sound = verify(lowered->program); !sound.ok()) return sound.error();
  return std::nullopt;
}

}  // namespace

Result<CheckedPlan> check_own_plan(const Scenario& scenario, const Model& model, const UserPlan& own,
                                   const RankOptions& options) {
  CheckedPlan checked;
  checked.name = own.name;
  auto ways = resolve_own_plan(scenario, model.graph, own);
  if (!ways) {
    checked.troubles.push_back({0, {}, ways.error()});
    return checked;
  }
  checked.text = to_string(ways->front().plan, model.graph, scenario.cluster);
  const CostTable costs = cost_table(scenario, model.graph.name);
  std::map<int, Result<PreparedModel>> prepared;
  Scenario with_it = scenario;  // a plan for each way in which it can be run
  with_it.plans.clear();
  for (const RankedPlan& way : *ways) {
    const int count = way.plan.micro_batches;
    if (!prepared.contains(count)) prepared.emplace(count, prepare_model(scenario, model.graph, count));
    const Result<PreparedModel>& at_count = prepared.at(count);
    const auto trouble =
        at_count.ok() ? trouble_of(scenario, *at_count, way.plan, costs) : std::optional<Error>(at_count.error());
    if (trouble) {
      checked.troubles.push_back({count, way.plan.schedule, at_plan(own, *trouble)});
      continue;
    }
    UserPlan possible = own;
    possible.micro_batches = {count};
    possible.schedule = way.plan.schedule;
    with_it.plans.push_back(std::move(possible));
  }
  if (with_it.plans.empty()) return checked;
  ASSIGN_OR_RETURN(checked.ranking, rank_plans(with_it, model, options));
  const std::vector<RankedPlan>& judged = checked.ranking->judged;
  const auto mine = std::ranges::find_if(judged, [](const RankedPlan& plan) { return plan.own; });
  if (mine == judged.end()) return failed("interrupted before the plan was simulated");
  checked.place = static_cast<size_t>(mine - judged.begin());
  if (!mine->why_not.empty()) {  // best plans are first: in no way
    checked.troubles.push_back(
        {mine->plan.micro_batches, mine->plan.schedule, at_plan(own, unsupported(mine->why_not))});
    checked.ranking.reset();
  }
  return checked;
}

}  // namespace nlsplit::inline ranking
