#include "report/ranking/confidence_text.h"

#include <fmt/format.h>

#include "ranking/worlds.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

// A cost as the figure that the table shows.
std::string figure(const Ranking& ranking, double cost) {
  switch (ranking.objective) {
    case Objective::throughput:
      return rate_text(cost > 0 ? static_cast<double>(ranking.batch) / cost : 0);
    case Objective::latency:
      return to_string(seconds(cost));
    case Objective::weighted:
      return fmt::format("{:.3g}", cost);
  }
  CHECK(false, "unknown objective");
}

std::string numbers(const std::vector<size_t>& plans) {
  std::string text = plans.size() == 1 ? "plan " : "plans ";
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool last = i > 0 && i + 1 == plans.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", plans[i] + 1);
  }
  return text;
}

}  // namespace

std::vector<std::string> error_bar_cells(const Ranking& ranking, size_t plan) {
  const ErrorBar& bar = ranking.confidence.value().plans[plan];
  const bool by_rate = ranking.objective == Objective::throughput;
  return {fmt::format("{}", bar.rank + 1),
          fmt::format("{} to {}", figure(ranking, by_rate ? bar.high : bar.low),
                      figure(ranking, by_rate ? bar.low : bar.high)),
          plan == 0 ? "" : fmt::format("{:+.1f} to {:+.1f} %", bar.difference_low * 100, bar.difference_high * 100)};
}

std::string error_bars_line(const Ranking& ranking, const Scenario& scenario) {
  if (!ranking.confidence) return ranking.no_error_bars.empty() ? "" : "no error bars: " + ranking.no_error_bars + "\n";
  std::string text = fmt::format("error bars: 90 % of {} draws of the kernel costs within their spreads",
                                 grouped(static_cast<double>(ranking.confidence->worlds)));
  if (scenario.spreads.plans)
    text += fmt::format(", and of the validation that taught the corrections (plans ±{:.1f} %)",
                        *scenario.spreads.plans * 100);
  else
    text += fmt::format(", and of plans in other validations (±{:.1f} %)", usual_plan_spread * 100);
  if (scenario.cluster.routes.empty() && !scenario.spreads.messages)
    text += "; links are taken as the scenario has them";
  return text + "\n";
}

std::string confidence_text(const Ranking& ranking) {
  if (!ranking.confidence) return "";
  const Confidence& confidence = *ranking.confidence;
  const double sure = confidence.covered * 100;
  if (confidence.set.size() == 1)
    return fmt::format("measure  {}: no other simulated plan is better, {:.0f} % sure\n", numbers(confidence.set),
                       sure);
  return fmt::format("measure  {}: one of them is the best of those simulated, {:.0f} % sure\n",
                     numbers(confidence.set), sure);
}

}  // namespace nlsplit::inline reports
