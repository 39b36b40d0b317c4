#include "tools/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/output_lock.h"
#include "compile/compile.h"
#include "program/text.h"
#include "program/verify.h"
#include "report/timeline.h"
#include "sim/online.h"
#include "tools/terminal.h"
#include "validate/plan_set.h"

namespace nlsplit::inline tools {
namespace {

// A device with a clock takes for each computation what the simulation took.
Result<Clocks> clocks_of(const Loaded& loaded, const Program& program) {
  const Cluster& cluster = loaded.scenario.cluster;
  if (std::ranges::none_of(cluster.devices, [](const Device& device) { return device.slowdown > 0; })) return Clocks{};
  const CostTable costs = cost_table(loaded.scenario, loaded.model.graph.name);
  Clocks clocks(program.devices.size());
  for (size_t d = 0; d < clocks.size(); ++d) {
    const DeviceId id = cluster.find_device(program.devices[d].name);
    if (!id.valid() || cluster.device(id).slowdown == 0) continue;
    clocks[d].assign(program.descs.size(), 0);
    for (const Segment& segment : program.devices[d].segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        const auto desc = static_cast<size_t>(instr.desc);
        ASSIGN_OR_RETURN(const Cost cost, costs.cost(id, program.descs[desc], instr.label));
        clocks[d][desc] = cost.time.value();
      }
    }
  }
  return clocks;
}

struct ChosenPlan {
  Plan plan;
  std::string text;
  size_t number = 0;  // PredictedPlan::number
};

// The best ones, then those drawn at random, in the order of their predictions.
Result<std::vector<ChosenPlan>> rank_and_choose(Loaded& loaded, const ValidationSetArguments& arguments) {
  RankOptions options = terminal_options();
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

// As one device alone: each stage the gradients of its weights from the first micro-batch to the last.
bool accumulates_in_order(const Program& program) {
  for (const DeviceProgram& device : program.devices) {
    std::map<int, int> last;  // stage: micro-batch
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      if (segment.phase != Phase::weight_gradient) continue;
      const auto [before, first] = last.try_emplace(segment.stage, slot.micro_batch);
      if (!first && slot.micro_batch < before->second) return false;
      before->second = slot.micro_batch;
    }
  }
  return true;
}

}  // namespace

Result<Program> unsplit_program(const Scenario& scenario, const Graph& optimized, int micro_batches, const Device& like,
                                const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, optimized, micro_batches, prefer));
  return on_one_device(scenario, prepared.kernels, micro_batches, like);
}

Result<Program> on_one_device(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                              const Device& like) {
  Device device = like;
  device.memory = bytes(unlimited_memory);
  ASSIGN_OR_RETURN(Program program,
                   compile_unsplit(kernels, micro_batches, device, scenario.cluster.hosts[like.host.index()].name));
  RETURN_IF_ERROR(verify(program));
  return program;
}

Result<SavedProgram> saved_form(Loaded& loaded, const Plan& plan, TimedPlan timed) {
  add_slices(timed.slices, loaded.model.weights);
  SavedProgram saved;
  saved.promise = std::move(timed.promise);
  saved.has_prediction = true;
  saved.prediction.fingerprint = timed.trace.fingerprint;
  saved.prediction.makespan_s = timed.estimate.makespan_s;
  saved.prediction.latency_mean_s = timed.estimate.latency_mean_s;
  if (timed.graph.online) saved.online = online_of(timed.graph, timed.program);
  for (const DeviceTimes& times : device_times(timed.program, timed.trace))
    saved.prediction.device_compute_s.push_back(times.compute);
  saved.program = std::move(timed.program);
  ASSIGN_OR_RETURN(saved.clocks, clocks_of(loaded, saved.program));
  const Device& first = loaded.scenario.cluster.device(plan.stages[0].devices[0]);
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   prepare_model(loaded.scenario, loaded.model.graph, plan.micro_batches));
  if (prepared.kernels.training) {
    loaded.model.weights.add_all(prepared.kernels.training->nodes.constants);
    const bool replicas = std::ranges::any_of(plan.stages, [](const Stage& stage) { return stage.devices.size() > 1; });
    if (replicas || !accumulates_in_order(saved.program))
      saved.promise = {rounding_tolerance(DType::f32), "gradients of micro-batches are added in another order"};
  }
  ASSIGN_OR_RETURN(saved.unsplit, on_one_device(loaded.scenario, prepared.kernels, plan.micro_batches, first));
  return saved;
}

Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments) {
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
    ASSIGN_OR_RETURN(chosen, rank_and_choose(loaded, arguments));
  } else {
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.plans));
    ASSIGN_OR_RETURN(const PlanSet before, parse_plan_set(text, arguments.plans));
    ASSIGN_OR_RETURN(chosen, chosen_before(loaded, before, arguments.plans));
    set.draw = before.draw;
  }
  for (size_t d = 0; d < loaded.scenario.cluster.devices.size(); ++d) {
    const Profile* profile = loaded.scenario.costs[d]->profile();
    const Device& device = loaded.scenario.cluster.devices[d];
    if (profile != nullptr && profile->gauge_s > 0) set.gauges_s[device.name] = profile->gauge_s;
  }
  std::set<std::string> known;
  for (const ChosenPlan& one : chosen) {
    show_progress("saving plans", set.plans.size(), chosen.size());
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
  clear_progress();
  return write_file(arguments.dir + "/plans.json", to_json(set));
}

}  // namespace nlsplit::inline tools
