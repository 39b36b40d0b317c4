#include "ranking/fitting_plans.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "ranking/alike.h"
#include "ranking/lowering_work.h"
#include "ranking/speculation.h"

namespace nlsplit::inline ranking {
namespace {

constexpr size_t most_kept_bytes = 512 << 20;  // of lowered plans that may be judged
constexpr size_t farthest_ahead = 256;         // candidates behind the one at hand that other cores may time

// Devices that are too small for the whole model, as one of so many copies of it.
class SmallDevices {
 public:
  // A device that was too small as one of more copies is too small as one of fewer under the same schedule: more
  // micro-batches pass through it. nullptr: none of the plan's is known to be.
  const Misfit* find(const Plan& plan) const {
    if (is_split(plan)) return nullptr;
    const std::vector<DeviceId>& copies = plan.stages[0].devices;
    for (const DeviceId device : copies) {
      const auto known = known_.find({plan.micro_batches, plan.schedule, device});
      if (known != known_.end() && known->second.copies >= copies.size()) return &known->second.misfit;
    }
    return nullptr;
  }

  void note(const Cluster& cluster, const Plan& plan, const Misfit& misfit) {
    if (is_split(plan)) return;
    known_.try_emplace({plan.micro_batches, plan.schedule, cluster.find_device(misfit.device)},
                       Known{plan.stages[0].devices.size(), misfit});
  }

 private:
  struct Known {
    size_t copies = 0;
    Misfit misfit;
  };
  std::map<std::tuple<int, std::string, DeviceId>, Known> known_;  // by micro-batches, schedule and device
};

// Which candidates are worth timing, by what is known of those before them.
class WorthTiming {
 public:
  WorthTiming(const RankContext& context, const std::vector<double>& node_shares, Pruning& pruning)
      : context_(context), pruning_(pruning), variants_(node_shares) {}

  bool is_worth(const Candidate& candidate) const {
    if (!prunes_ || !candidate.found) return true;
    const std::string& schedule = candidate.ranked.plan.schedule;
    return !variants_.enough(*candidate.found, schedule) && pruning_.worth(*candidate.found, schedule);
  }
  bool is_too_much(const Candidate& candidate) const {
    return candidate.found && context_.options.samples == 0 &&
           too_much_work(context_, *candidate.found, layers_, inside_);
  }

  void note_lowered(const Candidate& candidate) {
    if (candidate.found) (has_splits(candidate.ranked.plan) ? inside_ : layers_) += work_of(context_, *candidate.found);
  }
  // A plan that fits.
  void note_fitting(const Goal& goal, const Candidate& candidate, const Estimate& estimate) {
    if (!prunes_) return;
    PlanMetrics exact = metrics_of(estimate);
    double score = score_of(goal, estimate);
    if (context_.scenario.training && candidate.found && !has_splits(candidate.ranked.plan)) {
      exact[0] = std::max(exact[0], candidate.found->bound_seconds);
      score = std::max(score, candidate.bound);
    }
    pruning_.note(candidate.found ? &*candidate.found : nullptr,
                  score * (context_.noise_bound ? candidate.noise_factor : 1), exact, candidate.ranked.plan);
    if (candidate.found) variants_.note(*candidate.found, candidate.ranked.plan.schedule);
  }

 private:
  const RankContext& context_;
  Pruning& pruning_;
  Variants variants_;
  // Samples are of all plans that fit; and what a weighted objective is relative to is not known yet.
  const bool prunes_ = context_.options.samples == 0 && context_.scenario.objective != Objective::weighted;
  size_t layers_ = 0, inside_ = 0;  // of those found by search: lowered; for plans with splits inside layers
};

// Which candidates are timed depends on what was found of those before them. So on several cores more are timed than
// needed, and the rest goes on as if it were one.
Status time_in_order(const RankContext& context, std::vector<Candidate>& candidates,
                     const std::vector<double>& node_shares, FittingPlans& fitting,
                     std::vector<RankedBaseline>& baselines, Tally& tally) {
  WorthTiming worth(context, node_shares, fitting.pruning);
  SmallDevices small;
  const auto wanted = [&](size_t i) {
    const Candidate& candidate = candidates[i];
    return worth.is_worth(candidate) && small.find(candidate.ranked.plan) == nullptr && !worth.is_too_much(candidate);
  };
  Speculation<Timed> speculation(candidates.size(), context.workers, farthest_ahead, wanted, [&](size_t i) {
    return time_candidate(context, fitting.goal, candidates[i], fitting.kept.get());
  });
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i % 64 == 0) progress(context.options, "timing plans", i, candidates.size());
    if (interrupted(context.options)) {
      tally.interrupted = true;
      if (!fitting.candidates.empty()) break;  // there is an answer
    }
    Candidate& candidate = candidates[i];
    if (!worth.is_worth(candidate)) continue;
    if (worth.is_too_much(candidate)) {
      ++tally.untimed;
      continue;
    }
    Timed timed;
    if (const Misfit* known = small.find(candidate.ranked.plan))
      timed.too_large = *known;
    else
      timed = speculation.take(i);
    Status noted = ok_status();
    speculation.change([&] {
      noted = note_timed(context, timed, candidate, baselines, tally);
      if (timed.too_large) small.note(context.scenario.cluster, candidate.ranked.plan, *timed.too_large);
      worth.note_lowered(candidate);
    });
    RETURN_IF_ERROR(std::move(noted));
    if (!timed.estimate) continue;
    if (timed.recomputing) candidate.ranked.plan = *std::move(timed.recomputing);
    if (timed.without_idle) {
      const auto is_it = [&](const Candidate& other) { return other.ranked.plan == *timed.without_idle; };
      const auto later = candidates.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      if (std::ranges::any_of(fitting.candidates, is_it) || std::any_of(later, candidates.end(), is_it)) continue;
      candidate.ranked.plan = *std::move(timed.without_idle);
    } else {
      candidate.lowered = std::move(timed.lowered);
    }
    speculation.change([&] { worth.note_fitting(fitting.goal, candidate, *timed.estimate); });
    fitting.estimates.push_back(*timed.estimate);
    fitting.candidates.push_back(std::move(candidate));
  }
  return ok_status();
}

// What a weighted objective is relative to: the best single device.
void measure_against_singles(const std::vector<Candidate>& candidates, const std::vector<Estimate>& estimates,
                             Goal& goal) {
  std::vector<Estimate> singles, others;
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::vector<Estimate>& kind = is_single(candidates[i].ranked.plan) ? singles : others;
    kind.push_back(estimates[i]);
  }
  if (!candidates.empty()) set_yardstick(goal, singles, others);
}

}  // namespace

Result<FittingPlans> time_candidates(const RankContext& context, std::vector<Candidate> candidates,
                                     const std::vector<double>& node_shares, std::vector<RankedBaseline>& baselines,
                                     Tally& tally) {
  const Scenario& scenario = context.scenario;
  FittingPlans fitting{.candidates = {},
                       .estimates = {},
                       .goal = goal_of(scenario),
                       .pruning = Pruning(context.finalists, scenario.objective, scenario.training.has_value()),
                       .kept = nullptr};
  if (scenario.objective != Objective::weighted)
    fitting.kept = std::make_unique<KeptPlans>(context.finalists, most_kept_bytes);
  RETURN_IF_ERROR(time_in_order(context, candidates, node_shares, fitting, baselines, tally));
  if (fitting.candidates.empty() && !tally.interrupted) return nothing_fits(scenario, tally);
  measure_against_singles(fitting.candidates, fitting.estimates, fitting.goal);
  for (size_t i = 0; i < fitting.candidates.size(); ++i)
    set_scores(scenario, fitting.goal, fitting.estimates[i], fitting.candidates[i]);
  return fitting;
}

}  // namespace nlsplit::inline ranking
