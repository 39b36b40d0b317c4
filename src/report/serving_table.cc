#include "report/serving_table.h"

#include <fmt/format.h>

#include "base/units.h"
#include "report/table.h"

namespace nlsplit::inline report {
namespace {

void add_row(Table& table, const std::string& name, const Percentiles& of) {
  const auto time = [&](double s) { return of.count == 0 ? std::string("-") : to_string(seconds(s)); };
  table.add({name, time(of.p50), time(of.p95), time(of.p99), time(of.mean)});
}

}  // namespace

std::string serving_text(const ServingSummary& summary) {
  Table table({{""}, {"p50", Align::right}, {"p95", Align::right}, {"p99", Align::right}, {"mean", Align::right}});
  add_row(table, "first token (TTFT)", summary.first_token);
  add_row(table, "each next token (TPOT)", summary.next_token);
  const std::string reused =
      summary.cached_tokens == 0
          ? std::string()
          : fmt::format("of {} of prompts {} were reused\n", counted(summary.prompt_tokens, "token"),
                        grouped(static_cast<double>(summary.cached_tokens)));
  const std::string preempted = summary.preempted == 0
                                    ? std::string()
                                    : fmt::format("{} for want of pages\n", counted(summary.preempted, "preemption"));
  std::string failures;
  for (const auto& [why, count] : summary.failures) failures += fmt::format("  {} failed: {}\n", count, why);
  return fmt::format(
      "{}: {} answered, {} turned away, {} failed\n{}{:.1f} tokens/s, {:.3g} requests/s over {}\n{}{}\n{}",
      counted(summary.requests, "request"), summary.answered, summary.turned_away, summary.failed, failures,
      summary.tokens_per_s, summary.requests_per_s, to_string(seconds(summary.seconds)), reused, preempted,
      table.to_string());
}

}  // namespace nlsplit::inline report
