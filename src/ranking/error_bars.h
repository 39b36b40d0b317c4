// Error bars of the judged plans, where costs have spreads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranking/rank_context.h"

namespace nlsplit::inline ranking {

// Before anything is lowered: PlanParts are made only where they are used.
struct ErrorBarsWanted {
  bool wanted = false;
  std::string why_not;  // Ranking::no_error_bars: asked for, but there are none
};
// Error: RankOptions::confidence is asked for, and costs have no spreads.
Result<ErrorBarsWanted> error_bars_wanted(const Scenario& scenario, const RankOptions& options);

// Ranking::confidence, or why there is none.
struct ErrorBars {
  std::optional<Confidence> confidence;
  std::string why_not;
};
// lowered: of the judged plans, with their `parts`. was_interrupted: the ranking.
ErrorBars find_error_bars(const RankContext& context, const Goal& goal, const std::vector<RankedPlan>& judged,
                          const std::vector<LoweredPlan>& lowered, const std::vector<double>& node_shares,
                          bool was_interrupted);

}  // namespace nlsplit::inline ranking
