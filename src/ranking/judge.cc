// Of the candidates that are judged: lowered, verified, simulated by the tier that judges, and summed up.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/cores.h"
#include "ranking/judged_plans.h"

// jemalloc's, in a program that links it.
extern "C" int mallctl(const char* name, void* old, size_t* old_size, void* given, size_t given_size)
    __attribute__((weak));

namespace nlsplit::inline ranking {
namespace {

constexpr size_t plans_a_core = 4;  // lowered at a time: the Programs of a large model take tens of megabytes each
constexpr size_t least_judged = 2;  // after an interrupt, the best

struct Judging {
  explicit Judging(Candidate of) : candidate(std::move(of)) {}
  Candidate candidate;
  size_t parts = 1;  // networks that it is lowered on
  std::optional<Result<LoweredPlan>> lowered;
  Status sound;
  std::vector<Timing> timings;  // of parts
  SeenCosts costs;              // of a plan that splits layers
  bool left_out = false;        // after an interrupt
  bool runs() const { return lowered && lowered->ok() && sound.ok(); }
};

// Instructions, about: nodes of each micro-batch, on each device that shares it.
size_t size_of(const Plan& plan) {
  size_t nodes = 0;
  for (const Stage& stage : plan.stages)
    nodes += (stage.end - stage.begin) * (stage.split ? stage.split->shares.size() : 1);
  return nodes * static_cast<size_t>(plan.micro_batches);
}

// What the verdict and the explanations look at: how long its activities take.
void keep_times_only(LoweredPlan& plan) {
  for (LoweredPlan& other : plan.others) keep_times_only(other);
  plan.program = {};
  plan.dependencies = {};
  plan.timed.members = {};
  plan.timed.member_offset = {};
  plan.digest = {};
}

const LoweredPlan& part_of(const LoweredPlan& lowered, size_t part) {
  return part == 0 ? lowered : lowered.others[part - 1];
}

// Replicas share micro-batches by their speed: a slow one may get none.
void note_idle(const Cluster& cluster, RankedPlan& ranked) {
  for (const Stage& stage : ranked.plan.stages) {
    for (const DeviceId device : stage.devices) {
      const std::string& name = cluster.device(device).name;
      const bool works = std::ranges::any_of(
          ranked.estimate.devices, [&](const DeviceEstimate& other) { return other.name == name && other.share > 0; });
      if (!works)
        ranked.notes.push_back({fmt::format("{} has nothing to do with {} micro-batch{}", name,
                                            ranked.plan.micro_batches, ranked.plan.micro_batches == 1 ? "" : "es")});
    }
  }
}

// RankedPlan::layers
std::vector<std::string> layers_of(const Graph& graph, const Plan& plan) {
  if (plan.stages.size() == 1) return {"all"};
  std::vector<std::string> layers;
  for (const Stage& stage : plan.stages)
    layers.push_back(stage.end == graph.nodes.size() ? "rest" : ".." + cut_name(graph, stage.end));
  return layers;
}

// After an interrupt: what is not lowered yet, but for the best and what the verdict needs.
void leave_out_rest(std::vector<Judging>& plans) {
  for (size_t i = least_judged; i < plans.size(); ++i) {
    if (!plans[i].lowered && !plans[i].candidate.must_judge) plans[i].left_out = true;
  }
}

void lower_some(const RankContext& context, std::span<Judging* const> plans) {
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        Judging& plan = *plans[i];
        if (plan.left_out) return;
        const KeptPlan kept = std::move(plan.candidate.lowered);
        if (kept && *kept)
          plan.lowered = std::move(**kept);
        else
          plan.lowered = lower(context, plan.candidate.ranked.plan);
        if (!plan.lowered->ok()) return;
        LoweredPlan& lowered = plan.lowered->value();
        if (!lowered.digest && may_keep_digest(context, plan.candidate.ranked.plan)) keep_digest(lowered);
        plan.sound = verify(lowered);
      },
      context.workers);
}

void sum_up(const RankContext& context, Judging& plan) {
  if (!plan.runs()) return;
  const Scenario& scenario = context.scenario;
  LoweredPlan& lowered = plan.lowered->value();
  std::vector<Estimate> estimates;
  for (size_t k = 0; k < plan.parts; ++k) {
    const LoweredPlan& of = part_of(lowered, k);
    Estimate& estimate = estimates.emplace_back(estimate_of(scenario, of, plan.timings[k]));
    add_breakdown(of, break_down(of.timed, plan.timings[k], scenario.cluster), scenario.cluster, estimate);
  }
  plan.timings = {};
  RankedPlan& ranked = plan.candidate.ranked;
  ranked.estimate = whole_estimate(scenario, lowered, estimates);
  ranked.text = to_string(ranked.plan, context.graph, scenario.cluster);
  std::ranges::copy(lowered.notes, std::back_inserter(ranked.notes));
  if (ranked.own) note_idle(scenario.cluster, ranked);
  ranked.promise = lowered.promise;
  ranked.slots = slots_of(lowered);
  ranked.layers = layers_of(context.graph, ranked.plan);
  if (has_splits(ranked.plan)) count_costs_of(lowered.program, scenario.cluster, context.costs, plan.costs);
  if (context.wants_parts) lowered.parts = parts_of(lowered, scenario.cluster, context.costs);
  if (!wants_noise(context)) keep_times_only(lowered);
}

// Those that are lowered already first: others take their memory then. The largest first: while one is simulated in a
// child of this process others are lowered.
Status simulate_plans(const RankContext& context, std::vector<Judging>& plans, bool& was_interrupted) {
  std::vector<Judging*> order;
  for (Judging& plan : plans) order.push_back(&plan);
  std::ranges::stable_sort(order, std::greater(), [](const Judging* plan) {
    const KeptPlan& kept = plan->candidate.lowered;
    return std::pair(kept && *kept, size_of(plan->candidate.ranked.plan));
  });
  struct Part {
    size_t plan, part;  // into `order`
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < order.size(); ++i) {
    order[i]->parts = networks_of(context, order[i]->candidate.ranked.plan);
    for (size_t k = 0; k < order[i]->parts; ++k) parts.push_back({i, k});
  }
  const size_t at_once = plans_a_core * context.workers;
  const auto begin_of = [&](size_t plan) { return plan / at_once * at_once; };
  const auto some = [&](size_t begin) {
    return std::span(order).subspan(begin, std::min(at_once, order.size() - begin));
  };
  size_t lowered = 0;
  const TimedGraph nothing;
  return context.options.tier->simulate_each(
      parts.size(),
      [&](size_t p) {
        const auto [plan, part] = parts[p];
        if (plan == lowered) {
          progress(context.options, "simulating", lowered, order.size());
          if (interrupted(context.options)) {
            was_interrupted = true;
            leave_out_rest(plans);
          }
          lower_some(context, some(lowered));
          lowered += some(lowered).size();
        }
        const bool runs = order[plan]->runs();
        return Simulation{runs ? &part_of(order[plan]->lowered->value(), part).timed : &nothing,
                          &context.scenario.cluster};
      },
      [&](size_t p, Timing timing) {
        const auto [plan, part] = parts[p];
        order[plan]->timings.push_back(std::move(timing));
        const std::span<Judging*> chunk = some(begin_of(plan));
        if (order[plan] == chunk.back() && part + 1 == chunk.back()->parts)
          on_all_cores(
              chunk.size(), [&](size_t i) { sum_up(context, *chunk[i]); }, context.workers);
        return true;
      });
}

Status append_judged(const RankContext& context, Judging& plan, JudgedPlans& judged, Tally& tally) {
  if (plan.left_out) return ok_status();
  ASSIGN_OR_RETURN(LoweredPlan lowered, *std::move(plan.lowered));
  RankedPlan& ranked = plan.candidate.ranked;
  if (plan.sound.ok()) {
    judged.costs.merge(plan.costs);
    judged.lowered.push_back(std::move(lowered));
    judged.ranked.push_back(std::move(ranked));
    return ok_status();
  }
  // One device has several stages then, and its messages may need another order than its slots.
  if (has_splits(ranked.plan) && !ranked.own)
    return leave_out(context.scenario, plan.candidate, plan.sound.error(), tally);
  CHECK(ranked.own,
        fmt::format("a plan found by search does not verify: {}: {}",
                    to_string(ranked.plan, context.graph, context.scenario.cluster), plan.sound.error().message));
  Error error = plan.sound.error();
  error.message = fmt::format("plan {} cannot run: {}", ranked.plan.name, error.message);
  return error;
}

// Simulations of noisy links are children of this process, and a fork takes as long as there are pages.
void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  if (mallctl != nullptr) mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: all arenas
}

}  // namespace

Status judge(const RankContext& context, std::vector<Candidate> plans, JudgedPlans& judged, Tally& tally) {
  std::vector<Judging> judging;
  for (Candidate& candidate : plans) judging.emplace_back(std::move(candidate));
  plans.clear();
  RETURN_IF_ERROR(simulate_plans(context, judging, tally.interrupted));
  for (Judging& plan : judging) RETURN_IF_ERROR(append_judged(context, plan, judged, tally));
  return ok_status();
}

Result<int> judge_under_noise(const RankContext& context, JudgedPlans& judged) {
  return_freed_memory();
  ASSIGN_OR_RETURN(const NoiseRuns noisy, run_noise(context.scenario, judged.lowered, context.options));
  for (size_t i = 0; i < noisy.plans.size(); ++i) judged.ranked[i].noisy = noisy.plans[i];
  return noisy.runs;
}

}  // namespace nlsplit::inline ranking
