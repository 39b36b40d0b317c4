// What today's rules would choose, timed like the plans of the search.
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// One for each of partition/baselines.h, at its best by `goal`. `prepared` has the scenario's micro-batch counts.
// Error: a missing cost.
Result<std::vector<RankedBaseline>> judge_baselines(const Scenario& scenario, const Graph& graph,
                                                    const std::vector<PreparedModel>& prepared, const CostTable& costs,
                                                    const Goal& goal, const RankOptions& options);

}  // namespace nlsplit::inline ranking
