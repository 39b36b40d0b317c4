// The candidates, in the order in which they are timed: the plans that search found, and the user's own.
#pragma once

#include <vector>

#include "ranking/candidate.h"
#include "ranking/tally.h"

namespace nlsplit::inline ranking {

// The scenario's plans, at all their micro-batch counts and schedules. Error: one cannot be read. A plan that is not
// supported is refused, and the others are ranked.
Result<std::vector<RankedPlan>> own_plans(const Scenario& scenario, const Graph& graph, Tally& tally);

struct Candidates {
  std::vector<Candidate> plans;  // yardsticks, baselines and own plans first, then by the bound
  bool many_yardsticks = false;  // only the best of them are simulated
};
// baselines: how many there are (ranking/baseline_plans.h).
Candidates order_candidates(const Scenario& scenario, std::vector<Candidate> found, std::vector<RankedPlan> own,
                            size_t baselines);

}  // namespace nlsplit::inline ranking
