#include "ranking/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "program/verify.h"
#include "ranking/shorter.h"
#include "ranking/training_costs.h"

namespace nlsplit::inline ranking {
namespace {

// Of each device of the Program.
std::vector<PhaseTimes> phases_of(const LoweredPlan& lowered) {
  if (lowered.digest) return lowered.digest->phases;
  std::vector<PhaseTimes> times(lowered.program.devices.size(), PhaseTimes{});
  for (const Activity& activity : lowered.timed.activities) {
    if (activity.is_transfer) continue;
    const Instance& at = lowered.dependencies.instances[lowered.timed.members[activity.first_instance]];
    const DeviceProgram& device = lowered.program.devices[static_cast<size_t>(at.device)];
    const Slot& slot = device.order[static_cast<size_t>(at.slot)];
    const Phase phase = device.segments[static_cast<size_t>(slot.segment)].phase;
    times[static_cast<size_t>(at.device)][static_cast<size_t>(phase)] += activity.duration;
  }
  return times;
}

}  // namespace

Result<SearchCosts> search_costs(const Scenario& scenario, const PreparedModel& prepared, const CostTable& costs) {
  if (scenario.training)
    return training_search_costs(prepared.kernels, prepared.micro_batches, scenario.cluster, costs);
  return search_costs(prepared.kernels.graph, prepared.micro_batches, scenario.cluster, costs);
}

const PreparedModel& prepared_for(const std::vector<PreparedModel>& prepared, int micro_batches) {
  const auto at = std::ranges::find(prepared, micro_batches, &PreparedModel::micro_batches);
  CHECK(at != prepared.end(), "a plan with a micro-batch count nobody prepared");
  return *at;
}

bool is_single(const Plan& plan) {
  return plan.stages.size() == 1 && plan.stages[0].devices.size() == 1 && plan.prefill.empty();
}

Goal goal_of(const Scenario& scenario) { return {scenario.objective, scenario.weights, 0, 0}; }

void set_yardstick(Goal& goal, const std::vector<Estimate>& singles, const std::vector<Estimate>& others) {
  goal.makespan_s = goal.latency_s = std::numeric_limits<double>::infinity();
  for (const Estimate& estimate : singles.empty() ? others : singles) {
    goal.makespan_s = std::min(goal.makespan_s, estimate.makespan_s);
    goal.latency_s = std::min(goal.latency_s, estimate.latency_mean_s);
  }
}

Fullest fullest_device(const Scenario& scenario, const Estimate& estimate) {
  Fullest fullest;
  for (const DeviceEstimate& device : estimate.devices) {
    const DeviceId id = scenario.cluster.find_device(device.name);
    if (!id.valid()) continue;
    const double share = device.memory / scenario.cluster.device(id).memory;
    if (share > fullest.share) fullest = {device.name, share};
  }
  return fullest;
}

double score_of(const Goal& goal, double makespan_s, double latency_s) {
  switch (goal.objective) {
    case Objective::throughput:
      return makespan_s;
    case Objective::latency:
      return latency_s;
    case Objective::weighted:
      CHECK(goal.makespan_s > 0 && goal.latency_s > 0, "a weighted objective without what it is relative to");
      return goal.weights.throughput * makespan_s / goal.makespan_s + goal.weights.latency * latency_s / goal.latency_s;
  }
  CHECK(false, "unknown objective");
}

double score_of(const Goal& goal, const Estimate& estimate) {
  return score_of(goal, estimate.makespan_s, estimate.latency_mean_s);
}

CompileOptions compile_options(const Scenario& scenario) {
  CompileOptions options;
  options.all_reduce = scenario.all_reduce;
  options.buckets = scenario.buckets;
  options.zero = scenario.zero;
  options.exact = scenario.exact;
  options.native = scenario.native;
  return options;
}

namespace {

Result<LoweredPlan> compile_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                                 const CostTable& costs) {
  LoweredPlan lowered;
  ASSIGN_OR_RETURN(Compiled compiled, compile(prepared.kernels, plan, scenario.cluster, scenario.endpoints, &costs,
                                              compile_options(scenario)));
  lowered.program = std::move(compiled.program);
  lowered.slices = std::move(compiled.slices);
  lowered.training = std::move(compiled.training);
  lowered.notes = std::move(compiled.notes);
  lowered.promise = std::move(compiled.promise);
  lowered.online = std::move(compiled.online);
  return lowered;
}

// Whether it fits. If not, it is noted which device is too small.
bool fits(LoweredPlan& lowered) {
  const auto at = std::ranges::find_if(lowered.program.devices,
                                       [](const DeviceProgram& device) { return device.arena > device.memory; });
  if (at != lowered.program.devices.end()) lowered.too_large = &*at;
  return lowered.too_large == nullptr;
}

Status add_times(const Scenario& scenario, const CostTable& costs, LoweredPlan& lowered) {
  ASSIGN_OR_RETURN(lowered.dependencies,
                   lowered.online ? free_dependencies(lowered.program) : dependencies(lowered.program));
  ASSIGN_OR_RETURN(lowered.timed, timed_graph_of(lowered, scenario.cluster, costs));
  lowered.load = load_of(lowered.timed, scenario.cluster, lowered.program.devices.size());
  return ok_status();
}

// Of this plan and the others, of whatever a plan has.
template <class Of>
double whole(const LoweredPlan& lowered, const Of& of) {
  double sum = lowered.weight * of(size_t{0});
  for (size_t i = 0; i < lowered.others.size(); ++i) sum += lowered.others[i].weight * of(i + 1);
  return sum;
}

}  // namespace

Result<LoweredPlan> lower_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                               const CostTable& costs) {
  ASSIGN_OR_RETURN(LoweredPlan lowered, compile_plan(scenario, prepared, plan, costs));
  if (fits(lowered)) RETURN_IF_ERROR(add_times(scenario, costs, lowered));
  return lowered;
}

namespace {

// Whether any stage of a device without room begins to recompute.
bool recompute_more(const LoweredPlan& lowered, const Cluster& cluster, Plan& plan) {
  bool more = false;
  for (const DeviceProgram& device : lowered.program.devices) {
    if (device.arena <= device.memory) continue;
    const DeviceId id = cluster.find_device(device.name);
    for (Stage& stage : plan.stages) {
      if (stage.recompute || std::ranges::find(stage.devices, id) == stage.devices.end()) continue;
      stage.recompute = more = true;
    }
  }
  return more;
}

}  // namespace

Result<LoweredPlan> lower_to_fit(const Scenario& scenario, Plan& plan,
                                 const std::function<Result<LoweredPlan>(const Plan&)>& lower) {
  Result<LoweredPlan> lowered = lower(plan);
  if (!scenario.training || scenario.training->recompute != Recompute::to_fit) return lowered;
  while (lowered.ok() && lowered->too_large != nullptr && recompute_more(*lowered, scenario.cluster, plan))
    lowered = lower(plan);
  return lowered;
}

Result<LoweredPlan> lower_shorter(const Scenario& scenario, const std::vector<ShorterPlan>& plans,
                                  ShorterModels& models, const CostTable& costs) {
  std::vector<LoweredPlan> made;
  for (const ShorterPlan& shorter : plans) {
    ASSIGN_OR_RETURN(const PreparedModel* prepared, models.without(shorter.fewer));
    ASSIGN_OR_RETURN(made.emplace_back(), compile_plan(scenario, *prepared, shorter.plan, costs));
    made.back().weight = shorter.weight;
  }
  LoweredPlan lowered = std::move(made.front());
  for (size_t i = 1; i < made.size(); ++i) lowered.others.push_back(std::move(made[i]));
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    Bytes& arena = lowered.program.devices[d].arena;
    const double all = whole(lowered, [&](size_t i) {
      const Program& program = i == 0 ? lowered.program : lowered.others[i - 1].program;
      return static_cast<double>(program.devices[d].arena.value());
    });
    arena = bytes(static_cast<int64_t>(all));
  }
  if (!fits(lowered)) return lowered;
  RETURN_IF_ERROR(add_times(scenario, costs, lowered));
  for (LoweredPlan& other : lowered.others) RETURN_IF_ERROR(add_times(scenario, costs, other));
  return lowered;
}

Result<TimedGraph> timed_graph_of(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs) {
  if (lowered.online) return build_online_graph(lowered.program, lowered.dependencies, *lowered.online, cluster, costs);
  return build_timed_graph(lowered.program, lowered.dependencies, cluster, costs);
}

std::vector<int> micro_batches_of(const LoweredPlan& lowered) {
  if (lowered.digest) return lowered.digest->micro_batches;
  std::vector<int> micro_batches;
  micro_batches.reserve(lowered.timed.activities.size());
  for (const Activity& activity : lowered.timed.activities) {
    const uint32_t instance =
        activity.is_transfer ? activity.first_instance : lowered.timed.members[activity.first_instance];
    const Instance& at = lowered.dependencies.instances[instance];
    const DeviceProgram& device = lowered.program.devices[static_cast<size_t>(at.device)];
    micro_batches.push_back(device.order[static_cast<size_t>(at.slot)].micro_batch);
  }
  return micro_batches;
}

// An online plan has no order beforehand.
uint64_t slots_of(const LoweredPlan& lowered) {
  if (lowered.digest) return lowered.digest->slots;
  if (lowered.online) return 0;
  std::vector<int> slots;
  for (const DeviceProgram& device : lowered.program.devices) {
    if (device.order.empty()) continue;  // it is in the plan, and has nothing to do
    const uint64_t name = hash_text(device.name);
    slots.insert(slots.end(), {static_cast<int>(name), static_cast<int>(name >> 32)});
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      slots.insert(slots.end(), {segment.stage, segment.shard, static_cast<int>(segment.phase), slot.micro_batch});
    }
  }
  return hash_bytes(slots.data(), slots.size() * sizeof(int));
}

// Its dependencies are known, unless they are those of an online plan, or of one that does not fit.
Status verify(const LoweredPlan& lowered) {
  if (lowered.digest) return lowered.digest->sound;
  const bool known = !lowered.online && lowered.too_large == nullptr;
  return known ? verify(lowered.program, lowered.dependencies) : verify(lowered.program);
}

void keep_digest(LoweredPlan& lowered) {
  const auto keep = [](LoweredPlan& plan, Status sound) {
    PlanDigest digest{std::move(sound), micro_batches_of(plan), phases_of(plan), slots_of(plan)};
    for (DeviceProgram& device : plan.program.devices) {
      device.buffers = {};
      device.segments = {};
      device.order = {};
    }
    plan.program.descs = {};
    plan.dependencies = {};
    plan.timed.members = {};
    plan.timed.member_offset = {};
    plan.digest = std::move(digest);
  };
  keep(lowered, verify(lowered));
  for (LoweredPlan& other : lowered.others) keep(other, ok_status());
}

Latency latency_of(const std::vector<int>& micro_batches, int count, const Timing& timing) {
  const auto all = static_cast<size_t>(count);
  std::vector<double> first(all, std::numeric_limits<double>::infinity()), last(all, 0);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (micro_batches[i] < 0) continue;
    const auto m = static_cast<size_t>(micro_batches[i]);
    first[m] = std::min(first[m], timing.start[i]);
    last[m] = std::max(last[m], timing.finish[i]);
  }
  Latency latency;
  for (size_t m = 0; m < all; ++m) {
    if (first[m] > last[m]) continue;
    latency.mean += (last[m] - first[m]) / static_cast<double>(count);
    latency.longest = std::max(latency.longest, last[m] - first[m]);
  }
  return latency;
}

namespace {

// What is busy for the largest share of the makespan.
void find_busiest(const Scenario& scenario, const LoweredPlan& lowered, const Load& load, Estimate& estimate) {
  const auto share_of = [&](double seconds) { return estimate.makespan_s > 0 ? seconds / estimate.makespan_s : 0; };
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    if (const double share = share_of(load.device_seconds[d]); share > estimate.busiest_device_share) {
      estimate.busiest_device_share = share;
      estimate.busiest_device = lowered.program.devices[d].name;
    }
  }
  for (const auto& [hop, busy] : load.link_seconds) {
    if (const double share = share_of(busy); share > estimate.busiest_link_share) {
      estimate.busiest_link_share = share;
      estimate.busiest_link = name_of(scenario.cluster, hop);
    }
  }
}

}  // namespace

Estimate estimate_of(const Scenario& scenario, const LoweredPlan& lowered, const Timing& timing) {
  Estimate estimate;
  estimate.makespan_s = timing.makespan;
  estimate.throughput = timing.makespan > 0 ? static_cast<double>(lowered.program.batch) / timing.makespan : 0;
  const Latency latency = latency_of(micro_batches_of(lowered), lowered.program.micro_batches, timing);
  estimate.latency_mean_s = latency.mean;
  estimate.latency_max_s = latency.longest;
  const std::vector<PhaseTimes> phases = phases_of(lowered);
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    const DeviceProgram& device = lowered.program.devices[d];
    if (device.kind == DeviceKind::host) continue;
    const double share = timing.makespan > 0 ? lowered.load.device_seconds[d] / timing.makespan : 0;
    estimate.devices.push_back({device.name, share, device.arena, {}, phases[d]});
    if (device.arena > estimate.largest_memory) {
      estimate.largest_memory = device.arena;
      estimate.largest_device = device.name;
    }
  }
  find_busiest(scenario, lowered, lowered.load, estimate);
  return estimate;
}

Estimate whole_estimate(const Scenario& scenario, const LoweredPlan& lowered, const std::vector<Estimate>& estimates) {
  if (lowered.others.empty()) return estimates.front();
  const auto sum = [&](const auto& of) { return whole(lowered, [&](size_t i) { return of(estimates[i]); }); };
  Estimate all = estimates.front();
  all.makespan_s = sum([](const Estimate& e) { return e.makespan_s; });
  all.throughput = all.makespan_s > 0 ? static_cast<double>(lowered.program.batch) / all.makespan_s : 0;
  all.latency_mean_s = sum([](const Estimate& e) { return e.latency_mean_s; });
  all.latency_max_s = sum([](const Estimate& e) { return e.latency_max_s; });
  const auto share = [&](const auto& of) {
    const double seconds = sum([&](const Estimate& e) { return of(e) * e.makespan_s; });
    return all.makespan_s > 0 ? seconds / all.makespan_s : 0;
  };
  for (size_t d = 0; d < all.devices.size(); ++d) {
    DeviceEstimate& device = all.devices[d];
    device.share = share([&](const Estimate& e) { return e.devices[d].share; });
    for (double DeviceBreakdown::*part :
         {&DeviceBreakdown::computing, &DeviceBreakdown::exposed_communication, &DeviceBreakdown::waiting})
      device.breakdown.*part = sum([&](const Estimate& e) { return e.devices[d].breakdown.*part; });
    for (size_t phase = 0; phase < device.phases.size(); ++phase)
      device.phases[phase] = sum([&](const Estimate& e) { return e.devices[d].phases[phase]; });
  }
  for (LinkEstimate& link : all.links) {
    const auto use_of = [&](const Estimate& e) {
      const auto at = std::ranges::find(e.links, link.name, &LinkEstimate::name);
      return at == e.links.end() ? LinkUse() : at->use;
    };
    link.use.bytes = sum([&](const Estimate& e) { return use_of(e).bytes; });
    link.use.utilisation = share([&](const Estimate& e) { return use_of(e).utilisation; });
    link.use.busy = share([&](const Estimate& e) { return use_of(e).busy; });
  }
  Load load = lowered.load;
  const auto load_of_part = [&](size_t i) -> const Load& { return i == 0 ? lowered.load : lowered.others[i - 1].load; };
  for (size_t d = 0; d < load.device_seconds.size(); ++d)
    load.device_seconds[d] = whole(lowered, [&](size_t i) { return load_of_part(i).device_seconds[d]; });
  for (auto& [hop, busy] : load.link_seconds) {
    busy = whole(lowered, [&, at = hop](size_t i) {
      const auto& links = load_of_part(i).link_seconds;
      const auto found = std::ranges::find(links, at, &std::pair<Hop, double>::first);
      return found == links.end() ? 0.0 : found->second;
    });
  }
  all.busiest_device_share = all.busiest_link_share = 0;
  find_busiest(scenario, lowered, load, all);
  return all;
}

void add_breakdown(const LoweredPlan& lowered, const Breakdown& breakdown, const Cluster& cluster, Estimate& estimate) {
  auto device = estimate.devices.begin();
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    if (lowered.program.devices[d].kind != DeviceKind::host) (device++)->breakdown = breakdown.devices[d];
  }
  for (const LinkUse& use : breakdown.links) estimate.links.push_back({name_of(cluster, use.hop), use});
}

namespace {

Estimate estimate_one_fast(const Scenario& scenario, const LoweredPlan& lowered) {
  Timing timing;
  simulate_fast(lowered.timed, timing);
  timing.makespan = std::max(timing.makespan, lowered.load.busiest());
  return estimate_of(scenario, lowered, timing);
}

}  // namespace

Estimate estimate_fast(const Scenario& scenario, const LoweredPlan& lowered) {
  std::vector<Estimate> estimates = {estimate_one_fast(scenario, lowered)};
  for (const LoweredPlan& other : lowered.others) estimates.push_back(estimate_one_fast(scenario, other));
  return whole_estimate(scenario, lowered, estimates);
}

}  // namespace nlsplit::inline ranking
