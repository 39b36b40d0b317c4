// The fast tier: candidates are lowered and timed without contention, and those chosen that another tier shall judge.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ranking/alike.h"
#include "ranking/ranker.h"
#include "ranking/speculation.h"

namespace nlsplit::inline ranking {
namespace {

// What lowering may take: as much as of max_candidates plans of so many layers, each copy of a layer counted.
constexpr size_t layers_a_candidate = 600;
constexpr size_t layers_a_device = 40;  // what else lowering does for a device takes as long as so many layers
// Within stages that are split inside their layers: what expanding a node and lowering an instruction take.
constexpr double layers_an_inner_node = 10, layers_an_inner_instruction = 0.5;
constexpr size_t one_plan_part = 4;  // of that work, one such plan takes no more than this part

// Of lowered plans that may be judged.
constexpr size_t most_kept_bytes = 512 << 20;

constexpr size_t farthest_ahead = 256;  // candidates behind the one at hand that other cores may time

}  // namespace

size_t layers_lowered(const Plan& plan) {
  size_t layers = 0;
  for (const Stage& stage : plan.stages) layers += (stage.end - stage.begin + layers_a_device) * stage.devices.size();
  return layers;
}

size_t layers_lowered(const ScoredPlan& scored) {
  return layers_lowered(scored.plan) + static_cast<size_t>(layers_an_inner_node * scored.inner_nodes +
                                                           layers_an_inner_instruction * scored.inner_instructions);
}

double Ranker::bound_of(const ScoredPlan& scored) const {
  // The next token of a micro-batch waits for the others at the busiest device.
  if (scenario_.generation) return std::max(scored.latency_seconds, scored.busiest_seconds);
  return scenario_.objective == Objective::latency ? scored.latency_seconds : scored.bound_seconds;
}

// Of lowering plans, in layers.
size_t Ranker::most_work() const { return scenario_.search.max_candidates * layers_a_candidate; }

// Whether lowering a plan takes too long, where plans that search found before it took so many layers.
bool Ranker::too_much_work(const ScoredPlan& scored, size_t layers, size_t inside) const {
  const size_t most = most_work();
  if (!has_splits(scored.plan)) return layers > most;
  return inside > most || work_of(scored) > most / one_plan_part;
}

Status Ranker::fast_tier() {
  std::vector<Candidate> fitting;
  std::vector<Estimate> estimates;  // of each
  Pruning pruning(wanted(), scenario_.objective, scenario_.training.has_value());
  if (scenario_.objective != Objective::weighted) kept_ = std::make_unique<KeptPlans>(wanted(), most_kept_bytes);
  RETURN_IF_ERROR(time_candidates(pruning, fitting, estimates));
  candidates_ = std::move(fitting);
  if (candidates_.empty() && !ranking_.interrupted) return nothing_fits();
  measure_against_singles(estimates);
  for (size_t i = 0; i < candidates_.size(); ++i) score(candidates_[i], estimates[i]);
  if (may_refine() && !ranking_.interrupted) RETURN_IF_ERROR(refine(estimates, pruning));
  choose_champions(estimates);
  choose_best_of_rules();
  return ok_status();
}

// Which candidates are timed depends on what was found of those before them. So on several cores more are timed than
// needed, and the rest goes on as if it were one.
Status Ranker::time_candidates(Pruning& pruning, std::vector<Candidate>& fitting, std::vector<Estimate>& estimates) {
  // Samples are of all plans that fit; and what a weighted objective is relative to is not known yet.
  const bool prune = options_.samples == 0 && scenario_.objective != Objective::weighted;
  Variants variants(ranking_.node_shares);
  const auto worth = [&](const Candidate& candidate) {
    if (!prune || !candidate.found) return true;
    const std::string& schedule = candidate.ranked.plan.schedule;
    return !variants.enough(*candidate.found, schedule) && pruning.worth(*candidate.found, schedule);
  };
  size_t layers = 0, inside = 0;  // of those found by search: lowered; for plans with splits inside layers
  const auto too_much = [&](const Candidate& candidate) {
    return candidate.found && options_.samples == 0 && too_much_work(*candidate.found, layers, inside);
  };
  const auto wanted = [&](size_t i) {
    const Candidate& candidate = candidates_[i];
    return worth(candidate) && known_misfit(candidate.ranked.plan) == nullptr && !too_much(candidate);
  };
  Speculation<Timed> speculation(candidates_.size(), workers(), farthest_ahead, wanted,
                                 [&](size_t i) { return time(candidates_[i]); });
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i % 64 == 0) progress("timing plans", i, candidates_.size());
    if (interrupted()) {
      ranking_.interrupted = true;
      if (!fitting.empty()) break;  // there is an answer
    }
    Candidate& candidate = candidates_[i];
    if (!worth(candidate)) continue;
    if (too_much(candidate)) {
      ++ranking_.untimed;
      continue;
    }
    Timed timed;
    if (const Misfit* known = known_misfit(candidate.ranked.plan))
      timed.too_large = *known;
    else
      timed = speculation.take(i);
    Status noted = ok_status();
    speculation.change([&] {
      noted = note(candidate, timed);
      if (candidate.found) (has_splits(candidate.ranked.plan) ? inside : layers) += work_of(*candidate.found);
    });
    RETURN_IF_ERROR(std::move(noted));
    if (!timed.estimate) continue;
    if (timed.recomputing) candidate.ranked.plan = *std::move(timed.recomputing);
    if (timed.without_idle) {
      const auto is_it = [&](const Candidate& other) { return other.ranked.plan == *timed.without_idle; };
      const auto later = candidates_.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      if (std::ranges::any_of(fitting, is_it) || std::any_of(later, candidates_.end(), is_it)) continue;
      candidate.ranked.plan = *std::move(timed.without_idle);
    } else {
      candidate.lowered = std::move(timed.lowered);
    }
    speculation.change([&] {
      if (!prune) return;
      PlanMetrics exact = metrics_of(*timed.estimate);
      double score = score_of(goal_, *timed.estimate);
      if (scenario_.training && candidate.found && !has_splits(candidate.ranked.plan)) {
        exact[0] = std::max(exact[0], candidate.found->bound_seconds);
        score = std::max(score, candidate.bound);
      }
      pruning.note(candidate.found ? &*candidate.found : nullptr, score * (noise_bound_ ? candidate.noise_factor : 1),
                   exact, candidate.ranked.plan);
      if (candidate.found) variants.note(*candidate.found, candidate.ranked.plan.schedule);
    });
    estimates.push_back(*timed.estimate);
    fitting.push_back(std::move(candidate));
  }
  return ok_status();
}

// A device that was too small for the whole model as one of more copies of it is too small as one of fewer under the
// same schedule: more micro-batches pass through it. nullptr: none of these was.
const Misfit* Ranker::known_misfit(const Plan& plan) const {
  if (is_split(plan)) return nullptr;
  const std::vector<DeviceId>& copies = plan.stages[0].devices;
  for (const DeviceId device : copies) {
    const auto known = too_small_.find({plan.micro_batches, plan.schedule, device});
    if (known != too_small_.end() && known->second.copies >= copies.size()) return &known->second.misfit;
  }
  return nullptr;
}

Result<LoweredPlan> Ranker::lower(const Plan& plan) const {
  if (shorter_) {
    if (const std::vector<ShorterPlan> plans = shorter_plans(plan, shorter_->repeat()); !plans.empty())
      return lower_shorter(scenario_, plans, *shorter_, costs_);
  }
  return lower_plan(scenario_, prepared_for(plan), plan, costs_);
}

// As much of the work as of the nodes is left in shorter networks.
size_t Ranker::work_of(const ScoredPlan& scored) const {
  const size_t whole = layers_lowered(scored);
  if (scenario_.training && !has_splits(scored.plan)) return layers_of_a_step * whole;
  if (!shorter_) return whole;
  const std::vector<ShorterPlan> plans = shorter_plans(scored.plan, shorter_->repeat());
  if (plans.empty()) return whole;
  size_t left = 0;
  for (const ShorterPlan& shorter : plans) left += shorter.plan.stages.back().end;
  return std::min(whole, whole * left / scored.plan.stages.back().end);
}

// The plan without the devices that have nothing to do, which is as good. None: all have.
std::optional<Plan> Ranker::without_idle(const Plan& plan, const LoweredPlan& lowered) const {
  Plan rest = plan;
  for (size_t d = 0; d < lowered.program.devices.size(); ++d) {
    const DeviceProgram& device = lowered.program.devices[d];
    if (device.kind == DeviceKind::host || lowered.load.device_seconds[d] > 0) continue;
    const DeviceId id = scenario_.cluster.find_device(device.name);
    for (Stage& stage : rest.stages) {
      if (!stage.split && stage.devices.size() > 1) std::erase(stage.devices, id);
    }
  }
  return rest == plan ? std::nullopt : std::optional(std::move(rest));
}

// If it is among the best so far.
void Ranker::keep(const Candidate& candidate, const Plan& plan, LoweredPlan lowered, Timed& timed) const {
  const double score = fast_score(candidate, *timed.estimate);
  if (!kept_->wants(score)) return;
  if (may_keep_digest(plan)) keep_digest(lowered);
  timed.lowered = kept_->keep(score, std::move(lowered));
}

Ranker::Timed Ranker::time(const Candidate& candidate) const {
  Plan plan = candidate.ranked.plan;
  Timed timed;
  auto lowered = lower_to_fit(scenario_, plan, [this](const Plan& with) { return lower(with); });
  if (plan != candidate.ranked.plan) timed.recomputing = plan;
  if (!lowered) {
    timed.trouble = lowered.error();
  } else if (const DeviceProgram* device = lowered->too_large; device != nullptr) {
    timed.too_large = Misfit{device->name, device->memory, device->arena, 1};
  } else {
    timed.estimate = estimate_fast(scenario_, *lowered);
    if (!candidate.ranked.own && candidate.rules == 0) timed.without_idle = without_idle(plan, *lowered);
    if (prompts_matter()) add_prompts(plan, timed);
    if (noise_bound_) timed.noise_factor = noise_bound_->factor(*lowered, timed.estimate->makespan_s);
    if (kept_) keep(candidate, plan, *std::move(lowered), timed);
  }
  return timed;
}

// Counts it, among those that cannot be if it cannot.
Status Ranker::note(Candidate& candidate, const Timed& timed) {
  const Plan& plan = candidate.ranked.plan;
  note_rule(candidate, timed);
  if (timed.trouble) {
    if (has_splits(plan)) return leave_out(candidate, *timed.trouble);
    if (!has_no_schedule(candidate, *timed.trouble)) {
      const bool refused = candidate.ranked.own && timed.trouble->kind == ErrorKind::unsupported;
      return refused ? leave_out(candidate, *timed.trouble) : *timed.trouble;
    }
    if (ranking_.unscheduled++ == 0) ranking_.why_unscheduled = timed.trouble->message;
    return candidate.ranked.own ? count_own_trouble(candidate, *timed.trouble) : ok_status();
  }
  ++ranking_.considered;
  if (has_splits(plan)) ++ranking_.split_inside;
  if (timed.too_large) {
    count_misfit(*timed.too_large, candidate);
    const DeviceId device = scenario_.cluster.find_device(timed.too_large->device);
    if (!is_split(plan))
      too_small_.try_emplace({plan.micro_batches, plan.schedule, device},
                             TooSmall{plan.stages[0].devices.size(), *timed.too_large});
  }
  candidate.noise_factor = timed.noise_factor;
  candidate.prompt_s = timed.prompt_s;
  candidate.token_s = timed.token_s;
  return ok_status();
}

// A plan for which its schedule does not exist is left out, unless the user gave exactly this pair.
bool Ranker::has_no_schedule(const Candidate& candidate, const Error& error) const {
  if (!scenario_.training) return false;
  const Plan& plan = candidate.ranked.plan;
  const bool asked_for = candidate.ranked.own && std::ranges::any_of(scenario_.plans, [&](const UserPlan& own) {
                           return own.name == plan.name && own.schedule == plan.schedule;
                         });
  if (asked_for) return false;
  if (error.kind == ErrorKind::unsupported) return true;
  const auto input = schedule_input(prepared_for(plan).kernels, plan, scenario_.cluster, &costs_);
  return input.ok() && !make_schedule(plan.schedule, *input).ok();
}

// A plan that cannot be compiled: more shards than rows, a split that training refuses. If the search found it, it is
// left out; if it is the user's, it is reported, and the others are ranked.
Status Ranker::leave_out(const Candidate& candidate, const Error& error) {
  if (!candidate.ranked.own) {
    if (ranking_.left_out++ == 0) ranking_.why_left_out = error.message;
    return ok_status();
  }
  const Plan& plan = candidate.ranked.plan;
  const std::string schedule = scenario_.training ? plan.schedule : "";
  ranking_.own_left_out.push_back({plan.name, plan.micro_batches, schedule, error.message});
  return count_own_trouble(candidate, error);
}

// Error: nothing is left of a plan of the user's for want of a cost, whose key stands in the error's fragment. A
// ranking without it would be no answer, and the cost can be measured.
Status Ranker::count_own_trouble(const Candidate& candidate, const Error& error) {
  const std::string& name = candidate.ranked.plan.name;
  const Error& first = own_troubles_.try_emplace(name, error).first->second;
  if (--own_ways_[name] > 0) return ok_status();
  const auto at = std::ranges::find(scenario_.plans, name, &UserPlan::name);
  CHECK(at != scenario_.plans.end(), "a plan of one's own that the scenario has not");
  if (!first.fragment.empty()) return at_plan(*at, first);
  std::erase_if(ranking_.own_left_out, [&](const OwnLeftOut& other) { return other.name == name; });
  ranking_.own_refused.push_back({name, at_plan(*at, first)});
  return ok_status();
}

void Ranker::count_misfit(const Misfit& misfit, const Candidate& candidate) {
  auto at = std::ranges::find(ranking_.misfits, misfit.device, &Misfit::device);
  if (at == ranking_.misfits.end()) {
    ranking_.misfits.push_back({misfit.device, misfit.has, misfit.least_needed, 0});
    at = ranking_.misfits.end() - 1;
  }
  ++at->plans;
  at->least_needed = std::min(at->least_needed, misfit.least_needed);
  if (candidate.ranked.own) count_own_misfit(misfit, candidate.ranked.plan);
}

void Ranker::count_own_misfit(const Misfit& misfit, const Plan& plan) {
  auto at = std::find_if(ranking_.own_misfits.begin(), ranking_.own_misfits.end(),
                         [&](const OwnMisfit& m) { return m.name == plan.name && m.device == misfit.device; });
  if (at == ranking_.own_misfits.end()) {
    ranking_.own_misfits.push_back({plan.name, {}, misfit.device, misfit.has, misfit.least_needed});
    at = ranking_.own_misfits.end() - 1;
  }
  if (std::find(at->micro_batches.begin(), at->micro_batches.end(), plan.micro_batches) == at->micro_batches.end()) {
    at->micro_batches.push_back(plan.micro_batches);
  }
  at->least_needed = std::min(at->least_needed, misfit.least_needed);
}

Error Ranker::nothing_fits() const {
  if (ranking_.misfits.empty()) {
    if (ranking_.unscheduled + ranking_.left_out == 0 && !ranking_.own_refused.empty())
      return ranking_.own_refused.front().error;
    Error error =
        unsupported(ranking_.unscheduled > 0 ? fmt::format("no plan can be scheduled: {}", ranking_.why_unscheduled)
                                             : fmt::format("no plan can be lowered: {}", ranking_.why_left_out));
    error.where.file = scenario_.file;
    return error;
  }
  std::string text =
      fmt::format("no plan fits in the devices' memory, of {} that were looked at:", ranking_.considered);
  for (const Misfit& misfit : ranking_.misfits) {
    text += fmt::format("\n  {} has {}, the smallest plan that uses it needs {}", misfit.device, to_string(misfit.has),
                        to_string(misfit.least_needed));
  }
  if (scenario_.training && scenario_.training->recompute == Recompute::none)
    text += "\n  with `recompute: to_fit` in the workload, stages without room compute their activations again";
  for (const OwnRefused& refused : ranking_.own_refused) text += fmt::format("\n  {}", to_string(refused));
  Error error = invalid_input(text);
  error.where.file = scenario_.file;
  return error;
}

// What a weighted objective is relative to: the best single device among the candidates.
void Ranker::measure_against_singles(const std::vector<Estimate>& estimates) {
  std::vector<Estimate> singles, others;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    std::vector<Estimate>& kind = is_single(candidates_[i].ranked.plan) ? singles : others;
    kind.push_back(estimates[i]);
  }
  if (!candidates_.empty()) set_yardstick(goal_, singles, others);
}

double Ranker::fast_score(const Candidate& candidate, const Estimate& estimate) const {
  double score = score_of(goal_, estimate);
  if (scenario_.generation)
    score = std::max(score, estimate.makespan_s * std::max(estimate.busiest_device_share, estimate.busiest_link_share));
  // Messages within a split stage hinder each other, as do those of replicas that reduce gradients. This tier does not
  // see it. Of training with splits inside layers search says no lower bound: gradients by weights may be put off.
  if (has_splits(candidate.ranked.plan) != scenario_.training.has_value() && scenario_.objective != Objective::weighted)
    return std::max(score, candidate.bound);
  return score;
}

void Ranker::score(Candidate& candidate, const Estimate& estimate) const {
  candidate.fast_score = fast_score(candidate, estimate);
  candidate.noisy_score = candidate.fast_score * candidate.noise_factor;
}

// The best split in each respect is simulated whatever the objective: the verdict speaks of all three. So is the most
// even one, which would be the best over faster links. And the yardsticks: all of them where they are few, else the
// best device and the best copies in each respect.
void Ranker::choose_champions(const std::vector<Estimate>& estimates) {
  for (const PlanKind kind : {PlanKind::split, PlanKind::single, PlanKind::copies}) {
    if (kind != PlanKind::split && !many_yardsticks_) continue;
    choose_best(estimates, [&](const Candidate& candidate) {
      return kind_of(candidate.ranked.plan) == kind && (kind == PlanKind::split || !candidate.ranked.own);
    });
  }
}

// Of these the best in each respect must be judged.
template <class Among>
void Ranker::choose_best(const std::vector<Estimate>& estimates, const Among& among) {
  PlanMetrics least;
  std::array<size_t, std::tuple_size_v<PlanMetrics>> champion = {};
  least.fill(std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (!among(candidates_[i])) continue;
    const PlanMetrics scores = metrics_of(estimates[i]);
    for (size_t s = 0; s < scores.size(); ++s) {
      if (scores[s] >= least[s]) continue;
      least[s] = scores[s];
      champion[s] = i;
    }
  }
  for (size_t s = 0; s < champion.size(); ++s) {
    if (std::isfinite(least[s])) candidates_[champion[s]].must_judge = true;
  }
}

}  // namespace nlsplit::inline ranking
