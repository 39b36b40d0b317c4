// Points of a scenario: lowered as a ranking lowers its plans, timed by one of the two tiers. The model, its kernels
// and the cut of every plan are found once; a Program and its graph once for all seeds.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/cores.h"
#include "base/index.h"
#include "program/verify.h"
#include "ranking/evaluate.h"
#include "sim/disturb.h"
#include "sweep/points.h"

namespace nlsplit::inline sweeps {
namespace {

// The scenario with links and devices as fast as a point wants them.
struct Variant {
  Scenario scenario;
  CostTable costs;
};

Variant make_variant(const Scenario& base, const std::string& graph_name, const Setting& setting) {
  Scenario scenario = base;
  for (const auto& [name, factor] : setting.link_speeds) {
    for (Link& link : scenario.cluster.links) {
      if (name.empty() || link.name == name) link.bandwidth = link.bandwidth * factor;
    }
  }
  for (const auto& [name, factor] : setting.latencies) {
    for (Link& link : scenario.cluster.links) {
      if (name.empty() || link.name == name) link.latency = link.latency * factor;
    }
  }
  for (const auto& [name, factor] : setting.device_speeds) {
    if (factor == 1) continue;
    CostSourcePtr& costs = scenario.costs[scenario.cluster.find_device(name).index()];
    costs = costs->slowed(1 / factor);
  }
  CostTable costs = cost_table(scenario, graph_name);
  return {std::move(scenario), std::move(costs)};
}

// A plan of the scenario on a variant of it.
struct Made {
  const Variant* variant = nullptr;
  LoweredPlan lowered;
  std::string impossible;
  std::optional<Error> trouble;
};

// Why there is no such point, if the schedule is the reason.
bool has_no_schedule(const Variant& variant, const PreparedModel& prepared, const Plan& plan, const Error& error) {
  if (error.kind == ErrorKind::unsupported) return true;
  const auto input = schedule_input(prepared.kernels, plan, variant.scenario.cluster, &variant.costs);
  return input.ok() && !make_schedule(plan.schedule, *input).ok();
}

void make_point(const PreparedModel& prepared, const Plan& plan, bool verified, Made& made) {
  auto lowered = lower_plan(made.variant->scenario, prepared, plan, made.variant->costs);
  if (!lowered) {
    if (has_no_schedule(*made.variant, prepared, plan, lowered.error()))
      made.impossible = lowered.error().message;
    else
      made.trouble = lowered.error();
    return;
  }
  made.lowered = std::move(lowered).value();
  if (const DeviceProgram* device = made.lowered.too_large) {
    made.impossible = fmt::format("memory: {} has {} and would need {}", device->name, to_string(device->memory),
                                  to_string(device->arena));
    return;
  }
  if (!verified) return;
  if (const Status sound = verify(made.lowered.program); !sound.ok()) made.trouble = sound.error();
}

struct SlotTimes {
  double start = 0, finish = 0;
  bool any = false;
};

// When each slot of each device of the Program computed.
std::vector<std::vector<SlotTimes>> slot_times(const LoweredPlan& lowered, const Timing& timing) {
  std::vector<std::vector<SlotTimes>> times;
  for (const DeviceProgram& device : lowered.program.devices) times.emplace_back(device.order.size());
  for (size_t i = 0; i < lowered.timed.activities.size(); ++i) {
    const Activity& activity = lowered.timed.activities[i];
    if (activity.is_transfer || timing.finish[i] <= timing.start[i]) continue;
    const Instance& instance = lowered.dependencies.instances[lowered.timed.members[activity.first_instance]];
    SlotTimes& slot = times[at(instance.device)][at(instance.slot)];
    slot.start = slot.any ? std::min(slot.start, timing.start[i]) : timing.start[i];
    slot.finish = slot.any ? std::max(slot.finish, timing.finish[i]) : timing.finish[i];
    slot.any = true;
  }
  return times;
}

// Micro-batches between their F and their W on one device, of all its stages together.
int most_kept_micro_batches(const Program& program) {
  int most = 0;
  for (const DeviceProgram& device : program.devices) {
    int kept = 0;
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[at(slot.segment)];
      if (segment.stage == io_stage) continue;
      if (segment.phase == Phase::forward) ++kept;
      if (segment.phase == Phase::weight_gradient) --kept;
      most = std::max(most, kept);
    }
  }
  return most;
}

class ScenarioRunner : public PointRunner {
 public:
  ScenarioRunner(const Experiment& experiment, Model model) : experiment_(experiment), model_(std::move(model)) {}

  // What all points share.
  Status prepare() {
    Scenario scenario = experiment_.scenario;
    name_constants(model_, scenario);
    std::vector<int> counts;
    for (const Axis& axis : experiment_.axes) {
      if (axis.kind != AxisKind::micro_batches) continue;
      for (const AxisValue& value : axis.values) counts.push_back(static_cast<int>(value.numbers[0]));
    }
    for (const Axis& axis : experiment_.axes) {
      if (axis.kind != AxisKind::plan) continue;
      for (const AxisValue& value : axis.values) {
        UserPlan plan = *std::ranges::find(scenario.plans, value.name, &UserPlan::name);
        plan.micro_batches = {counts[0]};
        plan.schedule = scenario.schedules[0];  // here it is about the cut only
        ASSIGN_OR_RETURN(std::vector<RankedPlan> resolved, resolve_own_plan(scenario, model_.graph, plan));
        plans_[value.name] = std::move(resolved[0].plan);
      }
    }
    for (const int count : counts) {
      ASSIGN_OR_RETURN(PreparedModel prepared, prepare_model(scenario, model_.graph, count));
      prepared_.emplace(count, std::move(prepared));
    }
    return ok_status();
  }

  Result<std::vector<PointResult>> run(std::span<const Setting> settings, bool draw) override {
    keep_variants(settings);
    std::map<std::string, Made> made;
    std::vector<Made*> of;
    std::vector<std::pair<Made*, const Setting*>> to_make;
    for (const Setting& setting : settings) {
      const auto [entry, is_new] = made.try_emplace(plan_key(setting));
      of.push_back(&entry->second);
      if (!is_new) continue;
      entry->second.variant = variants_.at(cluster_key(setting)).get();
      to_make.emplace_back(&entry->second, &setting);
    }
    const bool verified = experiment_.tier != &fast_tier();  // it would take as long as all else that point needs
    on_all_cores(to_make.size(), [&](size_t i) {
      const Setting& setting = *to_make[i].second;
      make_point(prepared_.at(setting.micro_batches), plan_of(setting), verified, *to_make[i].first);
    });
    for (const auto& [one, setting] : to_make) {
      if (!one->trouble) continue;
      Error error = *one->trouble;
      error.message = fmt::format("plan {}, {}, {} micro-batches: {}", setting->plan, setting->schedule,
                                  setting->micro_batches, error.message);
      return error;
    }
    std::vector<PointResult> results(settings.size());
    RETURN_IF_ERROR(simulate(settings, of, draw, results));
    for (size_t i = 0; i < settings.size(); ++i) results[i].impossible = of[i]->impossible;
    return results;
  }

 private:
  Plan plan_of(const Setting& setting) const {
    Plan plan = plans_.at(setting.plan);
    plan.micro_batches = setting.micro_batches;
    plan.schedule = setting.schedule;
    return plan;
  }

  // Those of these points, of which some may be there from before.
  void keep_variants(std::span<const Setting> settings) {
    std::map<std::string, std::unique_ptr<Variant>> needed;
    for (const Setting& setting : settings) {
      std::unique_ptr<Variant>& variant = needed[cluster_key(setting)];
      if (variant != nullptr) continue;
      if (const auto known = variants_.find(cluster_key(setting)); known != variants_.end())
        variant = std::move(known->second);
      else
        variant = std::make_unique<Variant>(make_variant(experiment_.scenario, model_.graph.name, setting));
    }
    variants_ = std::move(needed);
  }

  std::function<void(TimedGraph&)> disturbance(const Setting& setting, const Made& made) const {
    if (!setting.noise) return {};
    Noise noise = *experiment_.scenario.noise;
    if (setting.seed) noise.seed = *setting.seed;
    return [noise = std::move(noise), &made](TimedGraph& graph) {
      const Cluster& cluster = made.variant->scenario.cluster;
      disturb(graph, noise, cluster,
              noise_keys(made.lowered.program, made.lowered.dependencies, made.lowered.timed, cluster), 0);
    };
  }

  Status simulate(std::span<const Setting> settings, const std::vector<Made*>& of, bool draw,
                  std::vector<PointResult>& results) const {
    std::vector<size_t> possible;
    for (size_t i = 0; i < settings.size(); ++i) {
      if (of[i]->impossible.empty()) possible.push_back(i);
    }
    std::vector<Timing> timings(possible.size());
    RETURN_IF_ERROR(experiment_.tier->simulate_each(
        possible.size(),
        [&](size_t i) {
          const Made& made = *of[possible[i]];
          return Simulation{&made.lowered.timed, &made.variant->scenario.cluster,
                            disturbance(settings[possible[i]], made)};
        },
        [&](size_t i, Timing timing) {
          timings[i] = std::move(timing);
          return true;
        }));
    on_all_cores(possible.size(), [&](size_t i) {
      const size_t point = possible[i];
      results[point] = result_of(settings[point], *of[point], timings[i], draw);
    });
    return ok_status();
  }

  PointResult result_of(const Setting& setting, const Made& made, const Timing& timing, bool draw) const {
    const Program& program = made.lowered.program;
    const Estimate estimate = estimate_of(made.variant->scenario, made.lowered, timing);
    PointResult result;
    result.makespan_s = estimate.makespan_s;
    result.throughput = estimate.throughput;
    result.latency_mean_s = estimate.latency_mean_s;
    result.busiest_device = estimate.busiest_device;
    result.busiest_device_share = estimate.busiest_device_share;
    result.busiest_link = estimate.busiest_link;
    result.busiest_link_share = estimate.busiest_link_share;
    result.peak_memory_bytes = estimate.largest_memory.value();
    if (is_training(program)) result.kept_micro_batches = most_kept_micro_batches(program);
    std::vector<DeviceSpan> spans(program.devices.size());
    for (size_t i = 0; i < made.lowered.timed.activities.size(); ++i) {
      const Activity& activity = made.lowered.timed.activities[i];
      if (!activity.is_transfer && timing.finish[i] > timing.start[i])
        spans[at(activity.device)].add(timing.start[i], timing.finish[i]);
    }
    std::vector<DeviceSpan> computing;
    for (size_t d = 0; d < spans.size(); ++d) {
      if (program.devices[d].kind != DeviceKind::host) computing.push_back(spans[d]);
    }
    add_idle(computing, result);
    if (draw) result.drawing = drawing_of(setting, made, timing);
    return result;
  }

  Drawing drawing_of(const Setting& setting, const Made& made, const Timing& timing) const {
    const Program& program = made.lowered.program;
    Drawing drawing;
    const auto times = slot_times(made.lowered, timing);
    for (size_t d = 0; d < program.devices.size(); ++d) {
      const DeviceProgram& device = program.devices[d];
      if (device.kind == DeviceKind::host) continue;
      const auto row = static_cast<int>(drawing.devices.size());
      drawing.devices.push_back(device.name);
      drawing.arena.push_back(device.arena.value());
      for (size_t s = 0; s < device.order.size(); ++s) {
        const Slot& slot = device.order[s];
        const Segment& segment = device.segments[at(slot.segment)];
        if (segment.stage == io_stage || !times[d][s].any) continue;
        drawing.bars.push_back(
            {row, segment.stage, slot.micro_batch, segment.phase, times[d][s].start, times[d][s].finish});
      }
    }
    if (!is_training(program)) return drawing;
    const auto input = schedule_input(prepared_.at(setting.micro_batches).kernels, plan_of(setting),
                                      made.variant->scenario.cluster, &made.variant->costs);
    if (!input.ok()) return drawing;
    for (const Bytes kept : input->kept_until_input_gradient) drawing.kept_until_input.push_back(kept.value());
    for (const Bytes kept : input->kept_until_weight_gradient) drawing.kept_until_weight.push_back(kept.value());
    return drawing;
  }

  const Experiment& experiment_;
  Model model_;
  std::map<std::string, Plan> plans_;      // by name; micro-batches and schedule are the point's
  std::map<int, PreparedModel> prepared_;  // by micro-batches
  std::map<std::string, std::unique_ptr<Variant>> variants_;
};

}  // namespace

Result<std::unique_ptr<PointRunner>> make_scenario_runner(const Experiment& experiment) {
  ASSIGN_OR_RETURN(Model model, load_model(experiment.scenario));
  auto runner = std::make_unique<ScenarioRunner>(experiment, std::move(model));
  RETURN_IF_ERROR(runner->prepare());
  return std::unique_ptr<PointRunner>(std::move(runner));
}

}  // namespace nlsplit::inline sweeps
