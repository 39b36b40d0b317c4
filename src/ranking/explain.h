// Explains the plans of a ranking: the bottleneck of each, and how slow links may be until one device is as good.
//
//   plan 1: stage 2 on B, 97 % busy; pays above 0.42 of the scenario's bandwidth and below 30 times its latency
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// Of the kept plans, in the user's order; Ranking::verdict must be there.
// judged: the lowered plans of ranking.judged, in its order.
std::vector<Explanation> explain(const Scenario& scenario, const Ranking& ranking,
                                 const std::vector<LoweredPlan>& judged);

}  // namespace nlsplit::inline ranking
