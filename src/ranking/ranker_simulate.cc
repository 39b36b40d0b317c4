// Of the candidates that are judged: lowered, verified, simulated by the tier that judges, and summed up.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/cores.h"
#include "ranking/ranker.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t plans_a_core = 4;  // lowered at a time: the Programs of a large model take tens of megabytes each
constexpr size_t least_judged = 2;  // after an interrupt, the best

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

}  // namespace

// Those that are lowered already first: others take their memory then. The largest first: while one is simulated in a
// child of this process others are lowered.
Status Ranker::simulate(std::vector<Judging>& plans) {
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
    order[i]->parts = networks_of(order[i]->candidate.ranked.plan);
    for (size_t k = 0; k < order[i]->parts; ++k) parts.push_back({i, k});
  }
  const size_t at_once = plans_a_core * workers();
  const auto begin_of = [&](size_t plan) { return plan / at_once * at_once; };
  const auto some = [&](size_t begin) {
    return std::span(order).subspan(begin, std::min(at_once, order.size() - begin));
  };
  size_t lowered = 0;
  const TimedGraph nothing;
  return options_.tier->simulate_each(
      parts.size(),
      [&](size_t p) {
        const auto [plan, part] = parts[p];
        if (plan == lowered) {
          progress("simulating", lowered, order.size());
          if (interrupted()) leave_out_of(plans);
          lower_some(some(lowered));
          lowered += some(lowered).size();
        }
        const bool runs = order[plan]->runs();
        return Simulation{runs ? &part_of(order[plan]->lowered->value(), part).timed : &nothing, &scenario_.cluster};
      },
      [&](size_t p, Timing timing) {
        const auto [plan, part] = parts[p];
        order[plan]->timings.push_back(std::move(timing));
        const std::span<Judging*> chunk = some(begin_of(plan));
        if (order[plan] == chunk.back() && part + 1 == chunk.back()->parts) sum_up(chunk);
        return true;
      });
}

// After an interrupt: what is not lowered yet, but for the best and what the verdict needs.
void Ranker::leave_out_of(std::vector<Judging>& plans) {
  ranking_.interrupted = true;
  for (size_t i = least_judged; i < plans.size(); ++i) {
    if (!plans[i].lowered && !plans[i].candidate.must_judge) plans[i].left_out = true;
  }
}

// How many networks it is lowered on.
size_t Ranker::networks_of(const Plan& plan) const {
  return shorter_ ? std::max<size_t>(1, shorter_plans(plan, shorter_->repeat()).size()) : 1;
}

void Ranker::lower_some(std::span<Judging* const> plans) const {
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        Judging& plan = *plans[i];
        if (plan.left_out) return;
        const KeptPlan kept = std::move(plan.candidate.lowered);
        if (kept && *kept)
          plan.lowered = std::move(**kept);
        else
          plan.lowered = lower(plan.candidate.ranked.plan);
        if (!plan.lowered->ok()) return;
        LoweredPlan& lowered = plan.lowered->value();
        if (!lowered.digest && may_keep_digest(plan.candidate.ranked.plan)) keep_digest(lowered);
        plan.sound = verify(lowered);
      },
      workers());
}

void Ranker::sum_up(std::span<Judging* const> plans) const {
  on_all_cores(
      plans.size(), [&](size_t i) { sum_up(*plans[i]); }, workers());
}

void Ranker::sum_up(Judging& plan) const {
  if (!plan.runs()) return;
  LoweredPlan& lowered = plan.lowered->value();
  std::vector<Estimate> estimates;
  for (size_t k = 0; k < plan.parts; ++k) {
    const LoweredPlan& of = part_of(lowered, k);
    Estimate& estimate = estimates.emplace_back(estimate_of(scenario_, of, plan.timings[k]));
    add_breakdown(of, break_down(of.timed, plan.timings[k], scenario_.cluster), scenario_.cluster, estimate);
  }
  plan.timings = {};
  RankedPlan& ranked = plan.candidate.ranked;
  ranked.estimate = whole_estimate(scenario_, lowered, estimates);
  ranked.text = to_string(ranked.plan, graph_, scenario_.cluster);
  std::ranges::copy(lowered.notes, std::back_inserter(ranked.notes));
  if (ranked.own) note_idle(scenario_.cluster, ranked);
  ranked.promise = lowered.promise;
  ranked.slots = slots_of(lowered);
  ranked.layers = layers_of(ranked.plan);
  if (has_splits(ranked.plan)) count_costs_of(lowered.program, plan.costs);
  if (wants_parts_) lowered.parts = nlsplit::parts_of(lowered, scenario_.cluster, costs_);
  if (!wants_noise()) keep_times_only(lowered);
}

// Appends to judged_ and Ranking::judged.
Status Ranker::note_judged(Judging& plan) {
  if (plan.left_out) return ok_status();
  ASSIGN_OR_RETURN(LoweredPlan lowered, *std::move(plan.lowered));
  RankedPlan& ranked = plan.candidate.ranked;
  if (plan.sound.ok()) {
    seen_costs_.merge(plan.costs);
    judged_.push_back(std::move(lowered));
    ranking_.judged.push_back(std::move(ranked));
    return ok_status();
  }
  // One device has several stages then, and its messages may need another order than its slots.
  if (has_splits(ranked.plan) && !ranked.own) return leave_out(plan.candidate, plan.sound.error());
  CHECK(ranked.own, fmt::format("a plan found by search does not verify: {}: {}",
                                to_string(ranked.plan, graph_, scenario_.cluster), plan.sound.error().message));
  Error error = plan.sound.error();
  error.message = fmt::format("plan {} cannot run: {}", ranked.plan.name, error.message);
  return error;
}

}  // namespace nlsplit::inline ranking
