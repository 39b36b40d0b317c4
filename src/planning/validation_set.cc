#include "planning/validation_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/output_lock.h"
#include "planning/saved_form.h"
#include "ranking/evaluate.h"
#include "ranking/generation.h"
#include "ranking/worlds.h"
#include "report/timeline.h"
#include "validate/plan_set.h"

namespace nlsplit::inline planning {
namespace {

constexpr const char* control_folder = "control";

struct ChosenPlan {
  Plan plan;
  std::string text;
  size_t number = 0;  // PredictedPlan::number
  bool in_confidence_set = false;
};

struct Choice {
  std::vector<ChosenPlan> plans;
  std::optional<ChosenPlan> control;
  Judge judge;
};

// Its makespan is the time of a token, its latency the time to the first one.
Judge judge_of(const Generation& generation) {
  switch (generation.objective) {
    case GenerationObjective::tpot:
      return {"TPOT", 1, 0};
    case GenerationObjective::ttft:
      return {"TTFT", 0, 1};
    case GenerationObjective::tokens_per_second:
      return {"tokens/s", static_cast<double>(generation.tokens - 1), 1};
  }
  CHECK(false, "unknown objective");
}

Judge judge_of(const Scenario& scenario, const Goal& goal) {
  if (scenario.generation) return judge_of(*scenario.generation);
  switch (goal.objective) {
    case Objective::throughput:
      return {"throughput", 1, 0};
    case Objective::latency:
      return {"latency", 0, 1};
    case Objective::weighted:
      return {"weighted", goal.weights.throughput / goal.makespan_s, goal.weights.latency / goal.latency_s};
  }
  CHECK(false, "unknown objective");
}

// Those of the confidence set; then the best ones, the scenario's own and those drawn at random, in the order of their
// predictions. And the best of one device.
Result<Choice> rank_and_choose(Loaded& loaded, const ValidationSetArguments& arguments, RankOptions options) {
  options.samples = arguments.also + arguments.top;  // some will be among the best
  options.seed = arguments.seed;
  // Without spreads of costs there is no such set, and the best plans have to do.
  if (arguments.confidence > 0 && without_spread(loaded.scenario).empty()) options.confidence = arguments.confidence;
  ASSIGN_OR_RETURN(const Ranking ranking, rank_plans(loaded.scenario, loaded.model, options));
  Choice choice;
  choice.judge = judge_of(loaded.scenario, ranking.goal);
  const std::vector<size_t> sure = ranking.confidence ? ranking.confidence->set : std::vector<size_t>{};
  for (const size_t i : sure)
    choice.plans.push_back({ranking.judged[i].plan, named_text(ranking.judged[i]), i + 1, true});
  size_t sampled = 0;
  std::set<std::string> own;  // of a plan that the scenario leaves micro-batches to, the best way
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const auto& judged = ranking.judged[i];
    const auto chosen = [&](size_t number) { return ChosenPlan{judged.plan, named_text(judged), number}; };
    if (!choice.control && is_single(judged.plan)) choice.control = chosen(i + 1);
    const bool is_control = choice.control && choice.control->number == i + 1;
    const bool first_of_own = judged.own && own.insert(judged.plan.name).second && !is_control;
    if (std::ranges::find(sure, i) != sure.end()) continue;
    const bool numbered = i < arguments.top || first_of_own;
    const bool drawn = judged.sampled && !numbered && sampled < arguments.also;
    if (drawn) ++sampled;
    if (drawn || numbered) choice.plans.push_back(chosen(numbered ? i + 1 : 0));
  }
  return choice;
}

Result<ChosenPlan> chosen_before(const Loaded& loaded, const PredictedPlan& plan, const std::string& file) {
  UserPlan own{.name = plan.folder,
               .stages = plan.stages,
               .micro_batches = {plan.micro_batches},
               .schedule = plan.schedule,
               .where = {},
               .line = {}};
  own.where.file = file;
  ASSIGN_OR_RETURN(std::vector<RankedPlan> ways, resolve_own_plan(loaded.scenario, loaded.model.graph, own));
  ways[0].plan.name.clear();
  return ChosenPlan{std::move(ways[0].plan), plan.text, plan.number, plan.in_confidence_set};
}

// Those of an earlier set.
Result<Choice> choose_again(const Loaded& loaded, const PlanSet& before, const std::string& file) {
  Choice choice;
  choice.judge = before.judge;
  if (const Judge now = judge_of(loaded.scenario, goal_of(loaded.scenario)); now.objective != before.judge.objective)
    return invalid_input(
        fmt::format("{}: these plans were chosen for the objective {}, and {} asks for {}; give another "
                    "--output or remove the folder",
                    file, before.judge.objective, loaded.scenario.file, now.objective));
  for (const PredictedPlan& plan : before.plans) {
    ASSIGN_OR_RETURN(choice.plans.emplace_back(), chosen_before(loaded, plan, file));
  }
  if (before.control) {
    ASSIGN_OR_RETURN(choice.control, chosen_before(loaded, *before.control, file));
  }
  return choice;
}

// What both kinds of plans have.
PredictedPlan plan_of(const Loaded& loaded, const ChosenPlan& one, const Program& program) {
  PredictedPlan plan;
  plan.text = one.text;
  plan.stages = stage_parts(one.plan, loaded.model.graph, loaded.scenario.cluster);
  plan.micro_batches = one.plan.micro_batches;
  plan.schedule = one.plan.schedule;
  plan.number = one.number;
  plan.sampled = one.number == 0;
  plan.in_confidence_set = one.in_confidence_set;
  for (const DeviceProgram& device : program.devices) {
    plan.devices.push_back(device.name);
    plan.hosts.push_back(device.host);
  }
  return plan;
}

PredictedPlan predicted_plan(const Loaded& loaded, const ChosenPlan& one, const TimedPlan& timed) {
  PredictedPlan plan = plan_of(loaded, one, timed.program);
  plan.fingerprint = hex16(timed.trace.fingerprint);
  plan.makespan_s = timed.estimate.makespan_s;
  plan.throughput = timed.estimate.throughput;
  plan.latency_mean_s = timed.estimate.latency_mean_s;
  for (const DeviceTimes& times : device_times(timed.program, timed.trace)) plan.compute_s.push_back(times.compute);
  plan.messages_s = message_seconds(timed.program, timed.trace);
  plan.timeline = timeline_json(timed.program, timed.trace);
  return plan;
}

PredictedPlan predicted_session(const Loaded& loaded, const ChosenPlan& one, const SavedSession& saved) {
  const SavedGeneration& of = saved.generation.value();
  PredictedPlan plan = plan_of(loaded, one, saved.session.programs.front());
  plan.fingerprint = fingerprint_of(saved.session);
  plan.makespan_s = of.next_token_s;
  plan.latency_mean_s = of.first_token_s;
  GenerationTimes times;
  times.first_token_s = of.first_token_s;
  times.next_token_s = of.next_token_s;
  plan.throughput = tokens_per_s(loaded.scenario, times);
  plan.timeline = "null";
  return plan;
}

// The costs that predict: the scenario's own, or as they are learnt to be.
Result<Scenario> predicting(const Scenario& scenario, const std::string& corrections_file) {
  Scenario corrected = scenario;
  if (corrections_file.empty()) return corrected;
  if (scenario.generation)
    return unsupported(fmt::format("{} generates text: nothing is learnt from that yet", scenario.file));
  if (scenario.corrected)
    return invalid_input(fmt::format("{} names corrections already: take them out to learn others", scenario.file));
  ASSIGN_OR_RETURN(const std::string text, read_file(corrections_file));
  ASSIGN_OR_RETURN(const Corrections corrections, parse_corrections(text, corrections_file));
  RETURN_IF_ERROR(apply(corrections, corrected.cluster, corrected.costs));
  return corrected;
}

// The same costs on machines whose computing takes so many times as long.
constexpr double slower = 1.1;
Result<Scenario> with_slower_computing(Scenario scenario) {
  Corrections all;
  for (const Device& device : scenario.cluster.devices) all.computing[device.name] = slower;
  RETURN_IF_ERROR(apply(all, scenario.cluster, scenario.costs));
  return scenario;
}

// d ln of the figure / d ln time of computing. By more than computing itself nothing grows, but for what messages do to
// each other.
double by_computing(double figure_s, double with_slower_s) {
  if (!(figure_s > 0) || !(with_slower_s > 0)) return 1;
  return std::clamp(std::log(with_slower_s / figure_s) / std::log(slower), 0.0, 1.0);
}

// By the names of devices: what a computation of known length took when their costs were measured.
void note_calibrations(const Scenario& scenario, PlanSet& set) {
  for (size_t d = 0; d < scenario.cluster.devices.size(); ++d) {
    const Profile* profile = scenario.costs[d]->profile();
    if (profile != nullptr && profile->calibration_s > 0)
      set.calibrations_s[scenario.cluster.devices[d].name] = profile->calibration_s;
  }
}

// Predicts plans and writes what runs them, each to a folder of its own. Plans that cut no weights share a file of
// them.
class SetWriter {
 public:
  SetWriter(Loaded& loaded, const ValidationSetArguments& arguments, Scenario predicted_by, Scenario slower)
      : loaded_(loaded), arguments_(arguments), predicted_by_(std::move(predicted_by)), slower_(std::move(slower)) {}

  // None: a plan before runs the same instructions.
  Result<std::optional<PredictedPlan>> add(const ChosenPlan& one, const std::string& folder) {
    return loaded_.scenario.generation ? add_session(one, folder) : add_program(one, folder);
  }

 private:
  Result<std::optional<PredictedPlan>> add_session(const ChosenPlan& one, const std::string& folder) {
    ASSIGN_OR_RETURN(const SavedSession saved, saved_session(loaded_, one.plan));
    PredictedPlan plan = predicted_session(loaded_, one, saved);
    if (!is_new(plan, folder)) return std::optional<PredictedPlan>();
    const std::string dir = arguments_.dir + "/" + folder;
    const bool cuts_weights = has_splits(one.plan);
    std::string& whole_weights = weights_of(one.plan);
    RETURN_IF_ERROR(whole_weights.empty() || cuts_weights ? save_session(dir, saved, loaded_.model.weights)
                                                          : save_session_like(dir, saved, whole_weights));
    if (!cuts_weights) whole_weights = dir;
    return std::optional(std::move(plan));
  }

  Result<std::optional<PredictedPlan>> add_program(const ChosenPlan& one, const std::string& folder) {
    ASSIGN_OR_RETURN(TimedPlan timed,
                     time_plan(loaded_.scenario, loaded_.model.graph, one.plan, std::nullopt, &predicted_by_));
    PredictedPlan plan = predicted_plan(loaded_, one, timed);
    if (!is_new(plan, folder)) return std::optional<PredictedPlan>();
    ASSIGN_OR_RETURN(const TimedPlan slowed,
                     time_plan(loaded_.scenario, loaded_.model.graph, one.plan, std::nullopt, &slower_));
    plan.makespan_by_computing = by_computing(plan.makespan_s, slowed.estimate.makespan_s);
    plan.latency_by_computing = by_computing(plan.latency_mean_s, slowed.estimate.latency_mean_s);
    if (!arguments_.corrections.empty()) return std::optional(std::move(plan));
    const std::string dir = arguments_.dir + "/" + folder;
    const bool cuts_weights = !timed.slices.empty() || timed.training != nullptr;
    std::string& whole_weights = weights_of(one.plan);
    ASSIGN_OR_RETURN(const SavedProgram saved, saved_form(loaded_, one.plan, std::move(timed)));
    RETURN_IF_ERROR(whole_weights.empty() || cuts_weights ? save_program(dir, saved, loaded_.model.weights)
                                                          : save_program_like(dir, saved, whole_weights));
    if (!cuts_weights) whole_weights = dir;
    return std::optional(std::move(plan));
  }

  bool is_new(PredictedPlan& plan, const std::string& folder) {
    plan.folder = folder;
    return folder == control_folder || known_.insert(plan.fingerprint).second;
  }

  // The folder that has them, once there is one. A training step's constants depend on its micro-batches.
  std::string& weights_of(const Plan& plan) { return weights_[loaded_.scenario.training ? plan.micro_batches : 0]; }

  Loaded& loaded_;
  const ValidationSetArguments& arguments_;
  Scenario predicted_by_, slower_;
  std::set<std::string> known_;  // fingerprints
  std::map<int, std::string> weights_;
};

// Sets its draw.
Result<Choice> choose(Loaded& loaded, const ValidationSetArguments& arguments, const RankOptions& options,
                      PlanSet& set) {
  set.draw = {arguments.top, arguments.also, arguments.seed, arguments.confidence};
  if (arguments.plans.empty()) return rank_and_choose(loaded, arguments, options);
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.plans));
  ASSIGN_OR_RETURN(const PlanSet before, parse_plan_set(text, arguments.plans));
  set.draw = before.draw;
  return choose_again(loaded, before, arguments.plans);
}

}  // namespace

Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments, const RankOptions& options) {
  if (loaded.scenario.generation && loaded.scenario.generation->page > 0)
    return unsupported("caches in pages are for a server: leave `page` and `cache` out of the workload");
  std::error_code failure;
  std::filesystem::create_directories(arguments.dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", arguments.dir, failure.message()));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(arguments.dir));
  ASSIGN_OR_RETURN(Scenario predicted_by, predicting(loaded.scenario, arguments.corrections));
  PlanSet set{loaded.scenario.file, loaded.model.graph.name, loaded.scenario.batch, {}};
  set.generates = loaded.scenario.generation.has_value();
  ASSIGN_OR_RETURN(const Choice choice, choose(loaded, arguments, options, set));
  set.judge = choice.judge;
  note_calibrations(loaded.scenario, set);
  ASSIGN_OR_RETURN(Scenario slower, with_slower_computing(predicted_by));
  SetWriter writer(loaded, arguments, std::move(predicted_by), std::move(slower));
  if (choice.control) {
    ASSIGN_OR_RETURN(set.control, writer.add(*choice.control, control_folder));
  }
  for (const ChosenPlan& one : choice.plans) {
    if (options.progress) options.progress("saving plans", set.plans.size(), choice.plans.size());
    ASSIGN_OR_RETURN(std::optional<PredictedPlan> plan, writer.add(one, fmt::format("p{}", set.plans.size() + 1)));
    if (plan) set.plans.push_back(std::move(*plan));
  }
  return write_file(arguments.dir + "/plans.json", to_json(set));
}

}  // namespace nlsplit::inline planning
