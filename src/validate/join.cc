#include <algorithm>
#include <cmath>

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

std::optional<Quality> quality_of(const std::vector<ValidatedPlan>& plans) {
  std::vector<Outcome> outcomes;
  for (const ValidatedPlan& plan : plans) {
    if (!plan.runs.empty()) outcomes.push_back(plan.outcome);
  }
  return quality_of(outcomes);
}

std::vector<ValidatedPlan> join(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::vector<ValidatedPlan> plans;
  const std::map<std::string, double> best = best_calibrations(runs, set.calibrations_s);
  for (const PredictedPlan& predicted : set.plans) {
    ValidatedPlan plan;
    plan.predicted = &predicted;
    for (const PlanRun& run : runs) {
      if (run.fingerprint != predicted.fingerprint) continue;
      if (run.error.empty())
        plan.runs.push_back(&run);
      else
        plan.error = run.error;
    }
    if (plan.runs.empty()) {
      plan.disturbed = true;
      plans.push_back(std::move(plan));
      continue;
    }
    plan.error.clear();
    plan.disturbed =
        std::ranges::all_of(plan.runs, [&](const PlanRun* run) { return undisturbed(*run, best).empty(); });
    const auto longest =
        static_cast<size_t>(std::ranges::max_element(predicted.compute_s) - predicted.compute_s.begin());
    std::vector<double> makespans, latencies, computing, sending;
    for (const PlanRun* run : plan.runs) {
      makespans.insert(makespans.end(), run->makespans_s.begin(), run->makespans_s.end());
      latencies.push_back(run->latency_mean_s);
      if (longest < run->compute_s.size()) computing.push_back(run->compute_s[longest]);
      sending.push_back(run->messages_s);
    }
    plan.outcome = {predicted.makespan_s, quantile(makespans, 0.5), predicted.latency_mean_s, quantile(latencies, 0.5),
                    (quantile(makespans, 0.75) - quantile(makespans, 0.25)) / 2};
    if (!computing.empty() && predicted.compute_s[longest] > 0)
      plan.compute_error = quantile(computing, 0.5) / predicted.compute_s[longest] - 1;
    if (predicted.messages_s > 0) plan.message_error = quantile(sending, 0.5) / predicted.messages_s - 1;
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace nlsplit::inline validation
