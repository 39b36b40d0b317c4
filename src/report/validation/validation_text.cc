#include <fmt/format.h>

#include <map>

#include "base/units.h"
#include "report/table.h"
#include "report/validation/validation_report.h"

namespace nlsplit::inline reports {
namespace {

std::string signed_percent(double part) { return fmt::format("{:+.1f} %", part * 100); }

std::string quantiles_text(const Quantiles& q) {
  return fmt::format("median {}, 9 of 10 within {}, largest {}", percent(q.median, 1), percent(q.p90, 1),
                     percent(q.max, 1));
}

std::string agreement_text(const Agreement& agreement) {
  if (agreement.pairs == 0) return "no two plans differ by more than their spreads";
  return fmt::format("Kendall's tau {:.3f} over {} that differ by more than their spreads", agreement.tau,
                     counted(static_cast<int64_t>(agreement.pairs), "pair"));
}

std::string quality_text(const Quality& q) {
  std::string text;
  text += fmt::format("throughput error   {}\n", quantiles_text(q.throughput_error));
  text += fmt::format("latency error      {}\n", quantiles_text(q.latency_error));
  text += fmt::format("run to run         ±{} (median of the plans)\n", percent(q.spread, 1));
  text += fmt::format("order              {}\n", agreement_text(q.all));
  text += fmt::format("  near the best    {} (plans within {:.0f} %)\n", agreement_text(q.near_best), near_best * 100);
  text += fmt::format("  all plans        Spearman's rho {:.3f}\n", q.spearman);
  text += fmt::format("best plan first    {}\n", q.best_first ? "yes, or none is clearly better" : "no");
  text += fmt::format("regret             {} trusting the first plan, {} trying the first five\n",
                      percent(q.regret_1, 1), percent(q.regret_5, 1));
  return text;
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

}  // namespace

std::string validation_text(const PlanSet& set, const std::vector<ValidatedPlan>& plans,
                            const Recalibration* recalibration) {
  Table table({{"plan", Align::right},
               {"stages", Align::left},
               {"micro-\nbatches", Align::right},
               {"predicted\nsamples/s", Align::right},
               {"measured\nsamples/s", Align::right},
               {"spread", Align::right},
               {"error", Align::right},
               {"computing", Align::right},
               {"messages", Align::right}});
  size_t ran = 0;
  std::map<std::string, std::vector<std::string>> failures;  // by what was said
  int64_t disturbed = 0;
  const auto batch = static_cast<double>(set.batch);
  for (const ValidatedPlan& plan : plans) {
    const PredictedPlan& p = *plan.predicted;
    std::vector<std::string> row = {p.number > 0 ? fmt::format("{}", p.number) : "random", p.text,
                                    fmt::format("{}", p.micro_batches), rate_text(p.throughput)};
    if (plan.runs.empty()) {
      row.insert(row.end(), {"-", "-", "-", "-", "-"});
      if (!plan.error.empty()) failures[plan.error].push_back(p.text);
    } else {
      const Outcome& o = plan.outcome;
      ++ran;
      disturbed += plan.disturbed ? 1 : 0;
      row.insert(row.end(), {rate_text(batch / o.measured), "±" + percent(o.spread / o.measured, 1),
                             signed_percent(o.measured / o.predicted - 1), signed_percent(plan.compute_error),
                             signed_percent(plan.message_error)});
    }
    table.add(std::move(row));
  }
  std::string text =
      fmt::format("{} · batch {} · {} of {} plans measured\n\n", set.model, set.batch, ran, plans.size());
  text += table.to_string();
  text +=
      "\nerror: of the predicted throughput; computing: how much longer the busiest device computed than predicted;\n"
      "messages: how much longer all of them took\n\n";
  if (const std::optional<Quality> quality = quality_of(plans)) text += quality_text(*quality);
  const ErrorSources sources = error_sources(plans);
  if (sources.computing) text += fmt::format("computing alone    {}\n", quantiles_text(*sources.computing));
  if (sources.messages) text += fmt::format("messages alone     {}\n", quantiles_text(*sources.messages));
  if (disturbed > 0) {
    text += fmt::format("disturbed          {}: a processor was slower than at its best in all their executions\n",
                        counted(disturbed, "plan"));
  }
  for (const auto& [said, failed] : failures) {
    text += fmt::format("\n{} failed ({}): {}\n", counted(static_cast<int64_t>(failed.size()), "plan"),
                        fmt::join(failed, "; "), said);
  }
  if (recalibration != nullptr) text += recalibration_text(*recalibration);
  return text;
}

}  // namespace nlsplit::inline reports
