#include "planning/validation_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/output_lock.h"
#include "planning/saved_form.h"
#include "report/timeline.h"
#include "validate/plan_set.h"

namespace nlsplit::inline planning {
namespace {

struct ChosenPlan {
  Plan plan;
  std::string text;
  size_t number = 0;  // PredictedPlan::number
};

// The best ones, then those drawn at random, in the order of their predictions.
Result<std::vector<ChosenPlan>> rank_and_choose(Loaded& loaded, const ValidationSetArguments& arguments,
                                                RankOptions options) {
  options.samples = arguments.also + arguments.top;  // some will be among the best
  options.seed = arguments.seed;
  ASSIGN_OR_RETURN(const Ranking ranking, rank_plans(loaded.scenario, loaded.model, options));
  std::vector<ChosenPlan> chosen;
  size_t sampled = 0;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const bool drawn = ranking.judged[i].sampled && i >= arguments.top && sampled < arguments.also;
    if (drawn) ++sampled;
    if (drawn || i < arguments.top)
      chosen.push_back({ranking.judged[i].plan, ranking.judged[i].text, i < arguments.top ? i + 1 : 0});
  }
  return chosen;
}

// Those of an earlier set.
Result<std::vector<ChosenPlan>> chosen_before(const Loaded& loaded, const PlanSet& before, const std::string& file) {
  std::vector<ChosenPlan> chosen;
  for (const PredictedPlan& plan : before.plans) {
    UserPlan own{.name = plan.folder,
                 .stages = plan.stages,
                 .micro_batches = {plan.micro_batches},
                 .schedule = plan.schedule,
                 .where = {},
                 .line = {}};
    own.where.file = file;
    ASSIGN_OR_RETURN(std::vector<RankedPlan> ways, resolve_own_plan(loaded.scenario, loaded.model.graph, own));
    ways[0].plan.name.clear();
    chosen.push_back({std::move(ways[0].plan), plan.text, plan.number});
  }
  return chosen;
}

}  // namespace

Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments, const RankOptions& options) {
  std::error_code failure;
  std::filesystem::create_directories(arguments.dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", arguments.dir, failure.message()));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(arguments.dir));
  Scenario predicted_by = loaded.scenario;
  if (!arguments.corrections.empty()) {
    if (loaded.scenario.corrected)
      return invalid_input(
          fmt::format("{} names corrections already: take them out to learn others", loaded.scenario.file));
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.corrections));
    ASSIGN_OR_RETURN(const Corrections corrections, parse_corrections(text, arguments.corrections));
    RETURN_IF_ERROR(apply(corrections, predicted_by.cluster, predicted_by.costs));
  }
  PlanSet set{loaded.scenario.file, loaded.model.graph.name, loaded.scenario.batch, {}};
  set.draw = {arguments.top, arguments.also, arguments.seed};
  std::vector<ChosenPlan> chosen;
  if (arguments.plans.empty()) {
    ASSIGN_OR_RETURN(chosen, rank_and_choose(loaded, arguments, options));
  } else {
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.plans));
    ASSIGN_OR_RETURN(const PlanSet before, parse_plan_set(text, arguments.plans));
    ASSIGN_OR_RETURN(chosen, chosen_before(loaded, before, arguments.plans));
    set.draw = before.draw;
  }
  for (size_t d = 0; d < loaded.scenario.cluster.devices.size(); ++d) {
    const Profile* profile = loaded.scenario.costs[d]->profile();
    const Device& device = loaded.scenario.cluster.devices[d];
    if (profile != nullptr && profile->calibration_s > 0) set.calibrations_s[device.name] = profile->calibration_s;
  }
  std::set<std::string> known;
  for (const ChosenPlan& one : chosen) {
    if (options.progress) options.progress("saving plans", set.plans.size(), chosen.size());
    ASSIGN_OR_RETURN(TimedPlan timed,
                     time_plan(loaded.scenario, loaded.model.graph, one.plan, std::nullopt, &predicted_by));
    PredictedPlan plan;
    plan.fingerprint = hex16(timed.trace.fingerprint);
    if (!known.insert(plan.fingerprint).second) continue;
    plan.folder = fmt::format("p{}", set.plans.size() + 1);
    plan.text = one.text;
    plan.stages = stage_parts(one.plan, loaded.model.graph, loaded.scenario.cluster);
    plan.micro_batches = one.plan.micro_batches;
    plan.schedule = one.plan.schedule;
    plan.number = one.number;
    plan.sampled = one.number == 0;
    plan.makespan_s = timed.estimate.makespan_s;
    plan.throughput = timed.estimate.throughput;
    plan.latency_mean_s = timed.estimate.latency_mean_s;
    for (const DeviceProgram& device : timed.program.devices) {
      plan.devices.push_back(device.name);
      plan.hosts.push_back(device.host);
    }
    for (const DeviceTimes& times : device_times(timed.program, timed.trace)) plan.compute_s.push_back(times.compute);
    plan.messages_s = message_seconds(timed.program, timed.trace);
    plan.timeline = timeline_json(timed.program, timed.trace);
    if (arguments.corrections.empty()) {
      const bool cuts_weights = !timed.slices.empty();  // the other folders have only whole ones
      ASSIGN_OR_RETURN(const SavedProgram saved, saved_form(loaded, one.plan, std::move(timed)));
      const std::string dir = arguments.dir + "/" + plan.folder;
      RETURN_IF_ERROR(set.plans.empty() || cuts_weights
                          ? save_program(dir, saved, loaded.model.weights)
                          : save_program_like(dir, saved, arguments.dir + "/" + set.plans[0].folder));
    }
    set.plans.push_back(std::move(plan));
  }
  return write_file(arguments.dir + "/plans.json", to_json(set));
}

}  // namespace nlsplit::inline planning
