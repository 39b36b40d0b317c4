#include <algorithm>
#include <cmath>
#include <optional>

#include "base/calibration.h"
#include "validate/results.h"

namespace nlsplit::inline validation {

std::map<std::string, double> best_calibrations(const std::vector<PlanRun>& runs,
                                                const std::map<std::string, double>& known) {
  std::map<std::string, std::vector<double>> all;
  for (const PlanRun& run : runs) {
    for (const auto& [device, calibrations] : run.calibrations_s)
      all[device].insert(all[device].end(), calibrations.begin(), calibrations.end());
  }
  std::map<std::string, double> best;
  for (auto& [device, calibrations] : all) {
    if (calibrations.empty()) continue;
    best[device] = best_calibration(std::move(calibrations));
    const auto before = known.find(device);
    if (before != known.end()) best[device] = std::min(best[device], before->second);
  }
  return best;
}

std::vector<size_t> undisturbed(const PlanRun& run, const std::map<std::string, double>& best) {
  std::vector<std::vector<double>> calibrations(run.makespans_s.size());
  std::vector<double> best_here;
  for (const auto& [device, of_device] : run.calibrations_s) {
    const auto known = best.find(device);
    if (known == best.end() || of_device.size() != calibrations.size()) continue;
    for (size_t r = 0; r < calibrations.size(); ++r) calibrations[r].push_back(of_device[r]);
    best_here.push_back(known->second);
  }
  return nlsplit::undisturbed(calibrations, best_here);  // base's
}

ErrorSources error_sources(const std::vector<ValidatedPlan>& plans) {
  std::vector<double> computing, messages;
  for (const ValidatedPlan& plan : plans) {
    if (plan.runs.empty()) continue;
    computing.push_back(std::abs(plan.compute_error));
    if (plan.predicted->messages_s > 0) messages.push_back(std::abs(plan.message_error));
  }
  ErrorSources sources;
  if (!computing.empty()) sources.computing = quantiles_of(computing);
  if (!messages.empty()) sources.messages = quantiles_of(messages);
  return sources;
}

namespace {

double middle(const std::vector<double>& values) { return quantile(values, 0.5); }
double half_quartiles(const std::vector<double>& values) {
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2;
}

bool is_control(const PlanRun& run) { return run.control && run.error.empty() && !run.makespans_s.empty(); }

// Below it the control says little of how fast the machine computes.
constexpr double least_by_computing = 0.5;

// [run]: how many times as long computing took in its minute as was predicted, by the control; none: nothing is known
// of that minute.
std::vector<std::optional<double>> slowness_of_runs(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::vector<std::optional<double>> before(runs.size()), after(runs.size()), slowness(runs.size());
  if (!set.control || set.control->makespan_by_computing < least_by_computing) return slowness;
  const PlanRun* last = nullptr;
  const auto note = [&](const PlanRun& run, std::optional<double>& control) {
    if (last != nullptr && last->launch == run.launch) control = middle(last->makespans_s);
    if (is_control(run)) last = &run;
  };
  for (size_t i = 0; i < runs.size(); ++i) note(runs[i], before[i]);
  last = nullptr;
  for (size_t i = runs.size(); i-- > 0;) note(runs[i], after[i]);
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::optional<double>& first = before[i] ? before[i] : after[i];
    const std::optional<double>& second = after[i] ? after[i] : before[i];
    if (!first || !second) continue;
    const double longer = (*first + *second) / 2 / set.control->makespan_s;
    slowness[i] = std::pow(longer, 1 / set.control->makespan_by_computing);
  }
  return slowness;
}

struct ScaledRun {
  const PlanRun* run = nullptr;
  double slowness = 1;  // of computing
};

Outcome outcome_of(const PredictedPlan& predicted, const std::vector<ScaledRun>& runs, const Judge& judge) {
  std::vector<double> makespans, latencies;
  Outcome outcome;
  for (const auto& [run, slowness] : runs) {
    const double makespan_scale = std::pow(slowness, -predicted.makespan_by_computing);
    const double latency_scale = std::pow(slowness, -predicted.latency_by_computing);
    for (const double makespan : run->makespans_s) makespans.push_back(makespan * makespan_scale);
    latencies.push_back(run->latency_mean_s * latency_scale);
    outcome.scores.push_back(
        judge.score(middle(run->makespans_s) * makespan_scale, run->latency_mean_s * latency_scale));
  }
  outcome.makespan = {predicted.makespan_s, middle(makespans), half_quartiles(makespans)};
  outcome.latency = {predicted.latency_mean_s, middle(latencies), half_quartiles(latencies)};
  outcome.score = {judge.score(predicted.makespan_s, predicted.latency_mean_s),
                   judge.score(outcome.makespan.measured, outcome.latency.measured),
                   judge.score(outcome.makespan.spread, outcome.latency.spread)};
  return outcome;
}

}  // namespace

const Outcome& judged(const ValidatedPlan& plan) { return plan.relative ? *plan.relative : plan.outcome; }

std::optional<Quality> quality_of(const std::vector<ValidatedPlan>& plans) {
  std::vector<Outcome> outcomes;
  for (const ValidatedPlan& plan : plans) {
    if (!plan.runs.empty()) outcomes.push_back(plan.outcome);
  }
  return quality_of(outcomes);
}

std::optional<Quality> relative_quality_of(const std::vector<ValidatedPlan>& plans) {
  std::vector<Outcome> outcomes;
  for (const ValidatedPlan& plan : plans) {
    if (plan.relative) outcomes.push_back(*plan.relative);
  }
  return quality_of(outcomes);
}

std::optional<ControlRuns> control_runs(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::vector<double> makespans;
  ControlRuns control;
  for (const PlanRun& run : runs) {
    if (!is_control(run)) continue;
    makespans.push_back(middle(run.makespans_s));
    ++control.runs;
  }
  if (!set.control || makespans.empty()) return std::nullopt;
  control.makespan = {set.control->makespan_s, middle(makespans), half_quartiles(makespans)};
  return control;
}

std::vector<ValidatedPlan> join(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::vector<ValidatedPlan> plans;
  const std::map<std::string, double> best = best_calibrations(runs, set.calibrations_s);
  const std::vector<std::optional<double>> slowness = slowness_of_runs(set, runs);
  for (const PredictedPlan& predicted : set.plans) {
    ValidatedPlan plan;
    plan.predicted = &predicted;
    std::vector<ScaledRun> as_they_were, scaled;
    for (size_t i = 0; i < runs.size(); ++i) {
      const PlanRun& run = runs[i];
      if (run.control || run.fingerprint != predicted.fingerprint) continue;
      if (!run.error.empty()) {
        plan.error = run.error;
        continue;
      }
      plan.runs.push_back(&run);
      as_they_were.push_back({&run, 1});
      if (slowness[i]) scaled.push_back({&run, *slowness[i]});
    }
    if (plan.runs.empty()) {
      plan.disturbed = true;
      plans.push_back(std::move(plan));
      continue;
    }
    plan.error.clear();
    plan.disturbed =
        std::ranges::all_of(plan.runs, [&](const PlanRun* run) { return undisturbed(*run, best).empty(); });
    plan.outcome = outcome_of(predicted, as_they_were, set.judge);
    if (!scaled.empty()) plan.relative = outcome_of(predicted, scaled, set.judge);
    const auto longest =
        static_cast<size_t>(std::ranges::max_element(predicted.compute_s) - predicted.compute_s.begin());
    std::vector<double> computing, sending;
    for (const PlanRun* run : plan.runs) {
      if (longest < run->compute_s.size()) computing.push_back(run->compute_s[longest]);
      sending.push_back(run->messages_s);
    }
    if (!computing.empty() && predicted.compute_s[longest] > 0)
      plan.compute_error = middle(computing) / predicted.compute_s[longest] - 1;
    if (predicted.messages_s > 0) plan.message_error = middle(sending) / predicted.messages_s - 1;
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace nlsplit::inline validation
