// What today's rules would choose, timed like the plans of the search.
#pragma once

#include <vector>

#include "ranking/ranking.h"

namespace nlsplit {

// One for each of partition/baselines.h. `prepared` has the scenario's micro-batch counts. Error: a missing cost.
Result<std::vector<RankedBaseline>> judge_baselines(const Scenario& scenario, const Graph& graph,
                                                    const std::vector<PreparedModel>& prepared, const CostTable& costs,
                                                    const RankOptions& options);

}  // namespace nlsplit
