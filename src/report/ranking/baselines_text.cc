#include "report/ranking/baselines_text.h"

#include <fmt/format.h>

#include "ranking/generation.h"
#include "report/table.h"

namespace nlsplit::inline reports {

std::string baselines_text(const Ranking& ranking, const Scenario& scenario) {
  if (ranking.baselines.empty() || ranking.judged.empty()) return "";
  const auto cost = [&](const Estimate& e) { return cost_of(ranking, e); };
  const Estimate& best = ranking.judged[0].estimate;
  const bool generates = ranking.generates;
  std::vector<Table::Column> columns = {
      {"today's rule", Align::left}, {"sees", Align::left}, {"plan", Align::left}, {"micro-\nbatches", Align::right}};
  if (generates)
    columns.insert(
        columns.end(),
        {{"each token\n(TPOT)", Align::right}, {"first token\n(TTFT)", Align::right}, {"tokens/s", Align::right}});
  else
    columns.insert(columns.end(), {{"samples/s", Align::right}, {"latency", Align::right}});
  columns.push_back({"plan 1 is", Align::right});
  Table table(columns);
  std::string impossible;
  bool any = false;
  for (const RankedBaseline& baseline : ranking.baselines) {
    if (!baseline.estimate) {
      impossible += fmt::format("note     {} cannot run{}: {}\n", baseline.name,
                                baseline.text.empty() ? "" : fmt::format(" ({})", baseline.text), baseline.why_not);
      continue;
    }
    const Estimate& e = *baseline.estimate;
    std::vector<std::string> cells = {baseline.name, baseline.rule, baseline.text,
                                      fmt::format("{}", baseline.plan.micro_batches)};
    double ratio = cost(e) / cost(best);
    if (baseline.generation && ranking.judged[0].generation) {
      const GenerationTimes& times = *baseline.generation;
      for (std::string cell : {to_string(seconds(times.next_token_s)), to_string(seconds(times.first_token_s)),
                               rate_text(times.tokens_per_s)})
        cells.push_back(std::move(cell));
      ratio = cost_of(scenario, times) / cost_of(scenario, *ranking.judged[0].generation);
    } else {
      cells.push_back(rate_text(e.throughput));
      cells.push_back(to_string(seconds(e.latency_mean_s)));
    }
    cells.push_back(fmt::format("{:.2f}x", ratio));
    table.add(std::move(cells));
    any = true;
  }
  return (any ? table.to_string() : "") + impossible;
}

}  // namespace nlsplit::inline reports
