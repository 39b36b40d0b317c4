#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/units.h"
#include "report/table.h"
#include "report/validation/validation_report.h"

namespace nlsplit::inline reports {
namespace {

std::string signed_percent(double part) { return fmt::format("{:+.1f} %", part * 100); }

std::string error_text(const Figure& figure) { return signed_percent(figure.measured / figure.predicted - 1); }

std::string quantiles_text(const Quantiles& q) {
  return fmt::format("median {}, p90 {}, largest {}", percent(q.median, 1), percent(q.p90, 1), percent(q.max, 1));
}

std::string agreement_text(const Agreement& agreement) {
  if (agreement.pairs == 0) return "no two plans differ by more than their spreads";
  return fmt::format("Kendall's tau {:.3f} over {} that differ by more than their spreads", agreement.tau,
                     counted(static_cast<int64_t>(agreement.pairs), "pair"));
}

// relative: nullptr where no plan has a control beside it.
std::string quality_text(const PlanSet& set, const Quality& q, const Quality* relative) {
  const std::string& objective = set.judge.objective;
  const auto errors = [&](const char* name, Quantiles Quality::*which) {
    std::string lines = fmt::format("{:<18} {}\n", name, quantiles_text(q.*which));
    if (relative != nullptr) lines += fmt::format("  to the control   {}\n", quantiles_text(relative->*which));
    return lines;
  };
  std::string text = errors(set.generates ? "TPOT error" : "throughput error", &Quality::throughput_error);
  text += errors(set.generates ? "TTFT error" : "latency error", &Quality::latency_error);
  const Quality& judged = relative != nullptr ? *relative : q;
  text += fmt::format("judged by          {}{}\n", objective, relative != nullptr ? ", relative to the control" : "");
  text += fmt::format("  run to run       ±{} (median of the plans)\n", percent(judged.spread, 1));
  text += fmt::format("  order            {}\n", agreement_text(judged.all));
  text +=
      fmt::format("  near the best    {} (plans within {:.0f} %)\n", agreement_text(judged.near_best), near_best * 100);
  text += fmt::format("  all plans        Spearman's rho {:.3f}\n", judged.spearman);
  text += fmt::format("  best plan first  {}\n", judged.best_first ? "yes, or none is clearly better" : "no");
  std::string range;
  if (judged.regret_range) {
    range = fmt::format(" ({} to {}: 9 of 10 draws of its runs)", percent(judged.regret_range->low, 1),
                        percent(judged.regret_range->high, 1));
  }
  text += fmt::format("  regret           {} trusting the first plan{}, {} trying the first five\n",
                      percent(judged.regret_1, 1), range, percent(judged.regret_5, 1));
  return text;
}

std::string control_text(const PlanSet& set, const ControlRuns& control) {
  const Figure& f = control.makespan;
  if (set.generates)
    return fmt::format("control            {}: each token predicted {}, measured {} in {} (±{}), {}\n",
                       set.control->text, to_string(seconds(f.predicted)), to_string(seconds(f.measured)),
                       counted(static_cast<int64_t>(control.runs), "run"), percent(f.spread / f.measured, 1),
                       signed_percent(f.measured / f.predicted - 1));
  const auto batch = static_cast<double>(set.batch);
  return fmt::format("control            {}: predicted {} samples/s, measured {} in {} (±{}), {}\n", set.control->text,
                     rate_text(batch / f.predicted), rate_text(batch / f.measured),
                     counted(static_cast<int64_t>(control.runs), "run"), percent(f.spread / f.measured, 1),
                     signed_percent(f.measured / f.predicted - 1));
}

std::string name_in(const PlanSet& set, const Contestant& contestant) {
  const PredictedPlan& plan = set.plans[contestant.plan];
  return plan.number > 0 ? fmt::format("plan {}", plan.number) : plan.text;
}

std::string contest_text(const PlanSet& set, const Contest& contest) {
  const std::string sure = fmt::format("with {:.0f} % confidence", contest.confidence * 100);
  if (contest.left.size() == 1) {
    return fmt::format("\nbest plan          {}, {}, after {}\n", name_in(set, contest.left[0]), sure,
                       counted(static_cast<int64_t>(contest.left[0].pairs), "round"));
  }
  std::vector<std::string> names;
  double most = 0;
  for (const Contestant& contestant : contest.left) {
    names.push_back(name_in(set, contestant));
    most = std::max(most, contestant.most());
  }
  if (contest.ends()) {
    return fmt::format("\nbest plan          {} are equal within {}, {}\n", fmt::join(names, ", "),
                       percent(equal_within, 1), sure);
  }
  std::string text = fmt::format("\nbest plan          one of {}, {}", fmt::join(names, ", "), sure);
  if (std::isfinite(most)) text += fmt::format("; they differ by {} at most", percent(most, 1));
  return text + "; more rounds would tell\n";
}

std::string recalibration_text(const Recalibration& r) {
  std::string factors;
  for (const auto& [device, factor] : r.corrections.computing) factors += fmt::format("{} x{:.3f}, ", device, factor);
  std::string text =
      fmt::format("\nrecalibrated       computing on {}messages x{:.3f}\n", factors, r.corrections.messages);
  if (!r.before || !r.after) return text;
  text += "on plans that did not teach it:\n";
  text += fmt::format("throughput error   {}; before: {}\n", quantiles_text(r.after->throughput_error),
                      quantiles_text(r.before->throughput_error));
  text += fmt::format("order              Kendall's tau {:.3f}; before: {:.3f}\n", r.after->all.tau, r.before->all.tau);
  text +=
      fmt::format("regret             {}; before: {}\n", percent(r.after->regret_1, 1), percent(r.before->regret_1, 1));
  return text;
}

// A figure of each plan: three or four columns, predicted, measured and error.
struct Column {
  std::string name;
  Figure Outcome::*figure;
  bool as_rate = false;  // of the batch
};

std::vector<Column> columns_of(const PlanSet& set) {
  if (set.generates) return {{"TPOT", &Outcome::makespan}, {"TTFT", &Outcome::latency}};
  if (set.judge.objective == "latency") return {{"latency", &Outcome::latency}};
  return {{"samples/s", &Outcome::makespan, true}};
}

Table empty_table(const PlanSet& set) {
  std::vector<Table::Column> columns = {
      {"plan", Align::right}, {"stages", Align::left}, {"micro-\nbatches", Align::right}};
  for (const Column& column : columns_of(set)) {
    for (const std::string& title : {"predicted\n" + column.name, "measured\n" + column.name, std::string("spread"),
                                     std::string("error"), std::string("to the\ncontrol")})
      columns.push_back({title, Align::right});
  }
  if (!set.generates) columns.insert(columns.end(), {{"computing", Align::right}, {"messages", Align::right}});
  return Table(std::move(columns));
}

std::vector<std::string> cells_of(const PlanSet& set, const Column& column, const ValidatedPlan& plan) {
  const auto text = [&](double value) {
    return column.as_rate ? rate_text(static_cast<double>(set.batch) / value) : to_string(seconds(value));
  };
  const PredictedPlan& p = *plan.predicted;
  const double predicted = column.figure == &Outcome::makespan ? p.makespan_s : p.latency_mean_s;
  if (plan.runs.empty()) return {text(predicted), "-", "-", "-", "-"};
  const Figure& shown = plan.outcome.*column.figure;
  return {text(predicted), text(shown.measured), "±" + percent(shown.spread / shown.measured, 1), error_text(shown),
          plan.relative ? error_text((*plan.relative).*column.figure) : "-"};
}

}  // namespace

std::string validation_text(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings) {
  Table table = empty_table(set);
  size_t ran = 0;
  std::map<std::string, std::vector<std::string>> failures;  // by what was said
  int64_t disturbed = 0;
  for (const ValidatedPlan& plan : plans) {
    const PredictedPlan& p = *plan.predicted;
    std::vector<std::string> row = {p.number > 0 ? fmt::format("{}", p.number) : "random", p.text,
                                    fmt::format("{}", p.micro_batches)};
    for (const Column& column : columns_of(set))
      std::ranges::copy(cells_of(set, column, plan), std::back_inserter(row));
    const bool measured = !plan.runs.empty();
    ran += measured ? 1 : 0;
    disturbed += measured && plan.disturbed ? 1 : 0;
    if (!plan.error.empty()) failures[plan.error].push_back(p.text);
    if (!set.generates)
      row.insert(row.end(), {measured ? signed_percent(plan.compute_error) : "-",
                             measured ? signed_percent(plan.message_error) : "-"});
    table.add(std::move(row));
  }
  std::string text = fmt::format("{} · {} {} · {} of {} plans measured\n\n", set.model,
                                 set.generates ? "sequences" : "batch", set.batch, ran, plans.size());
  text += table.to_string();
  text +=
      "\nerror: how much longer it took than predicted; to the control: the same if the control had taken what was "
      "predicted";
  text += set.generates ? "\nTPOT: of each token; TTFT: to the first token\n\n"
                        : ";\ncomputing: how much longer the busiest device computed; messages: how much longer all of "
                          "them took\n\n";
  if (findings.control != nullptr) text += control_text(set, *findings.control);
  if (const std::optional<Quality> quality = quality_of(plans)) {
    const std::optional<Quality> relative = relative_quality_of(plans);
    text += quality_text(set, *quality, relative ? &*relative : nullptr);
  }
  const ErrorSources sources = error_sources(plans);
  if (sources.computing && !set.generates)
    text += fmt::format("computing alone    {}\n", quantiles_text(*sources.computing));
  if (sources.messages) text += fmt::format("messages alone     {}\n", quantiles_text(*sources.messages));
  if (disturbed > 0) {
    text += fmt::format("disturbed          {}: a processor was slower than at its best in all their executions\n",
                        counted(disturbed, "plan"));
  }
  for (const auto& [said, failed] : failures) {
    text += fmt::format("\n{} failed ({}): {}\n", counted(static_cast<int64_t>(failed.size()), "plan"),
                        fmt::join(failed, "; "), said);
  }
  if (findings.contest != nullptr) text += contest_text(set, *findings.contest);
  if (findings.recalibration != nullptr) text += recalibration_text(*findings.recalibration);
  return text;
}

}  // namespace nlsplit::inline reports
