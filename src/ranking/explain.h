// Why the plans of a ranking are as good as they are: what each is bound by, and what the links would have to be for it
// to pay against one device.
//
//   plan 1: stage 2 on B, 97 % busy; pays above 0.42 of today's bandwidth and below 30 times today's latency
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// Of the kept plans, in the user's order; Ranking::verdict must be there.
// judged: the lowered plans of ranking.judged, in its order.
std::vector<Explanation> explain(const Scenario& scenario, const Ranking& ranking,
                                 const std::vector<LoweredPlan>& judged);

}  // namespace nlsplit::inline ranking
