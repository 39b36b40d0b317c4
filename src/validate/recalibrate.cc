#include "validate/recalibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace nlsplit::inline validation {
namespace {

// Half the distance between the quartiles, relative to the median. Quartiles of fewer than four values are none.
std::optional<double> spread_of(const std::vector<double>& ratios) {
  if (ratios.size() < 4) return std::nullopt;
  const double median = quantile(ratios, 0.5);
  if (!(median > 0)) return std::nullopt;
  return (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / 2 / median;
}

std::optional<double> spread_of_plans(const std::vector<ValidatedPlan>& plans) {
  std::vector<double> ratios;
  for (const ValidatedPlan& plan : plans) {
    if (plan.runs.empty()) continue;
    const Figure& makespan = judged(plan).makespan;
    if (makespan.predicted > 0) ratios.push_back(makespan.measured / makespan.predicted);
  }
  return spread_of(ratios);
}

}  // namespace

Corrections learn(const std::vector<ValidatedPlan>& plans) {
  constexpr double least_share = 0.1;
  std::map<std::string, std::vector<double>> computing;
  std::vector<double> messages;
  for (const ValidatedPlan& plan : plans) {
    const PredictedPlan& p = *plan.predicted;
    const double busiest = p.compute_s.empty() ? 0 : *std::ranges::max_element(p.compute_s);
    for (const PlanRun* run : plan.runs) {
      for (size_t d = 0; d < p.devices.size() && d < p.compute_s.size() && d < run->compute_s.size(); ++d) {
        if (p.compute_s[d] > 0 && p.compute_s[d] >= least_share * busiest)
          computing[p.devices[d]].push_back(run->compute_s[d] / p.compute_s[d]);
      }
      if (p.messages_s > 0 && run->messages_s > 0) messages.push_back(run->messages_s / p.messages_s);
    }
  }
  Corrections corrections;
  for (const auto& [device, ratios] : computing) {
    if (const double factor = quantile(ratios, 0.5); factor > 0) corrections.computing[device] = factor;
    if (const std::optional<double> spread = spread_of(ratios)) corrections.spreads.computing[device] = *spread;
  }
  if (!messages.empty()) corrections.messages = quantile(messages, 0.5);
  corrections.spreads.messages = spread_of(messages);
  return corrections;
}

Result<Recalibration> recalibrate(const PlanSet& set, const std::vector<PlanRun>& runs,
                                  const std::function<Result<PlanSet>(const Corrections&)>& predict) {
  const std::vector<ValidatedPlan> plans = join(set, runs);
  Recalibration result;
  result.corrections = learn(plans);
  result.before = quality_of(plans);
  std::array<std::vector<ValidatedPlan>, 2> halves;
  size_t measured = 0;
  std::map<std::string, size_t> half_of;  // by fingerprint
  for (const ValidatedPlan& plan : plans) {
    if (plan.runs.empty()) continue;
    half_of[plan.predicted->fingerprint] = measured % 2;
    halves[measured++ % 2].push_back(plan);
  }
  if (halves[1].empty()) return invalid_input("--recalibrate needs at least two plans that ran");
  PlanSet corrected = set;
  for (const size_t teachers : {size_t{0}, size_t{1}}) {
    ASSIGN_OR_RETURN(const PlanSet again, predict(learn(halves[teachers])));
    if (again.plans.size() != set.plans.size())
      return failed("the plans of the second prediction are not those of the first");
    for (size_t i = 0; i < set.plans.size(); ++i) {
      if (again.plans[i].fingerprint != set.plans[i].fingerprint)
        return failed(fmt::format("plan {} of the second prediction is another one", i + 1));
      const auto half = half_of.find(set.plans[i].fingerprint);
      if (half != half_of.end() && half->second != teachers) corrected.plans[i] = again.plans[i];
    }
  }
  const std::vector<ValidatedPlan> judged = join(corrected, runs);
  result.after = quality_of(judged);
  result.corrections.spreads.plans = spread_of_plans(judged);
  return result;
}

}  // namespace nlsplit::inline validation
