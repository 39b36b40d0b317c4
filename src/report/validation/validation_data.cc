#include "report/validation/validation_data.h"

#include <nlohmann/json.hpp>

#include "report/validation/validation_report.h"

namespace nlsplit::inline reports {

using nlohmann::json;

namespace {

json to_json(const Quantiles& q) { return {{"median", q.median}, {"p90", q.p90}, {"max", q.max}}; }
json to_json(const Agreement& a) { return {{"tau", a.pairs > 0 ? json(a.tau) : json()}, {"pairs", a.pairs}}; }

json to_json(const Quality& q) {
  return {{"plans", q.plans},
          {"throughput_error", to_json(q.throughput_error)},
          {"latency_error", to_json(q.latency_error)},
          {"spread", q.spread},
          {"kendall", to_json(q.all)},
          {"kendall_near_best", to_json(q.near_best)},
          {"spearman", q.spearman},
          {"best_first", q.best_first},
          {"regret_1", q.regret_1},
          {"regret_1_range", q.regret_range ? json({q.regret_range->low, q.regret_range->high}) : json()},
          {"regret_5", q.regret_5}};
}

// As if the control had taken what it was predicted to take.
json relative_json(const Outcome& o) {
  return {{"makespan_s", o.makespan.measured},
          {"spread_s", o.makespan.spread},
          {"latency_mean_s", o.latency.measured},
          {"throughput_error", o.makespan.measured / o.makespan.predicted - 1}};
}

json control_json(const PlanSet& set, const ControlRuns& control) {
  return {{"plan", set.control->text},
          {"predicted_makespan_s", control.makespan.predicted},
          {"measured_makespan_s", control.makespan.measured},
          {"spread_s", control.makespan.spread},
          {"runs", control.runs}};
}

json contest_json(const PlanSet& set, const Contest& contest) {
  json left = json::array();
  for (const Contestant& it : contest.left) {
    const bool known = it.pairs >= least_pairs;
    left.push_back({{"number", set.plans[it.plan].number},
                    {"fingerprint", set.plans[it.plan].fingerprint},
                    {"rounds", it.pairs},
                    {"worse_than_leader", it.worse_by},
                    {"uncertainty", known ? json(it.uncertainty) : json()}});
  }
  return {{"confidence", contest.confidence}, {"ends", contest.ends()}, {"left", std::move(left)}};
}

}  // namespace

json validation_data(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings,
                     bool timelines) {
  json list = json::array();
  for (const ValidatedPlan& plan : plans) {
    const PredictedPlan& p = *plan.predicted;
    json entry = {{"number", p.number},
                  {"plan", p.text},
                  {"micro_batches", p.micro_batches},
                  {"schedule", p.schedule},
                  {"sampled", p.sampled},
                  {"fingerprint", p.fingerprint},
                  {"predicted", {{"makespan_s", p.makespan_s}, {"latency_mean_s", p.latency_mean_s}}},
                  {"measured", nullptr}};
    if (!plan.error.empty()) entry["failure"] = plan.error;
    if (!plan.runs.empty()) {
      const Outcome& o = plan.outcome;
      entry["measured"] = {{"makespan_s", o.makespan.measured},
                           {"spread_s", o.makespan.spread},
                           {"latency_mean_s", o.latency.measured},
                           {"disturbed", plan.disturbed},
                           {"runs", plan.runs.size()}};
      entry["error"] = {{"throughput", o.makespan.measured / o.makespan.predicted - 1},
                        {"latency", o.latency.predicted / o.latency.measured - 1},
                        {"computing", plan.compute_error},
                        {"messages", plan.message_error}};
      if (plan.relative) entry["relative"] = relative_json(*plan.relative);
      if (timelines) entry["timelines"] = {json::parse(p.timeline), json::parse(plan.runs.back()->timeline)};
    }
    list.push_back(std::move(entry));
  }
  json file = {{"format", "nlsplit-validation-report"},
               {"version", 3},
               {"scenario", set.scenario},
               {"model", set.model},
               {"batch", set.batch},
               {"generates", set.generates},
               {"objective", set.judge.objective},
               {"quality", nullptr},
               {"relative_quality", nullptr},
               {"control", findings.control != nullptr ? control_json(set, *findings.control) : json()},
               {"plans", std::move(list)}};
  const ErrorSources sources = error_sources(plans);
  file["computing_error"] = sources.computing ? to_json(*sources.computing) : json();
  file["message_error"] = sources.messages ? to_json(*sources.messages) : json();
  if (const std::optional<Quality> q = quality_of(plans)) file["quality"] = to_json(*q);
  if (const std::optional<Quality> q = relative_quality_of(plans)) file["relative_quality"] = to_json(*q);
  if (findings.contest != nullptr) file["contest"] = contest_json(set, *findings.contest);
  return file;
}

std::string validation_json(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings) {
  json file = validation_data(set, plans, findings, false);
  if (const Recalibration* recalibration = findings.recalibration; recalibration != nullptr) {
    const auto quality = [](const std::optional<Quality>& q) { return q ? to_json(*q) : json(); };
    file["recalibration"] = {{"computing", recalibration->corrections.computing},
                             {"messages", recalibration->corrections.messages},
                             {"before", quality(recalibration->before)},
                             {"after", quality(recalibration->after)}};
  }
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace nlsplit::inline reports
