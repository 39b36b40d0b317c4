#include "report/ranking/baselines_text.h"

#include <fmt/format.h>

#include "report/table.h"

namespace nlsplit::inline reports {

std::string baselines_text(const Ranking& ranking) {
  if (ranking.baselines.empty() || ranking.judged.empty()) return "";
  const auto cost = [&](const Estimate& e) { return cost_of(ranking, e); };
  const Estimate& best = ranking.judged[0].estimate;
  Table table({{"today's rule", Align::left},
               {"sees", Align::left},
               {"plan", Align::left},
               {"micro-\nbatches", Align::right},
               {"samples/s", Align::right},
               {"latency", Align::right},
               {"plan 1 is", Align::right}});
  std::string impossible;
  bool any = false;
  for (const RankedBaseline& baseline : ranking.baselines) {
    if (!baseline.estimate) {
      impossible += fmt::format("note     {} cannot run{}: {}\n", baseline.name,
                                baseline.text.empty() ? "" : fmt::format(" ({})", baseline.text), baseline.why_not);
      continue;
    }
    const Estimate& e = *baseline.estimate;
    table.add({baseline.name, baseline.rule, baseline.text, fmt::format("{}", baseline.plan.micro_batches),
               rate_text(e.throughput), to_string(seconds(e.latency_mean_s)),
               fmt::format("{:.2f}x", cost(e) / cost(best))});
    any = true;
  }
  return (any ? table.to_string() : "") + impossible;
}

}  // namespace nlsplit::inline reports
