// Is splitting worth it? Compares the best split with one machine and with replicas of the whole model.
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// judged: the lowered plans of ranking.judged, in its order. workers: cores that share the work.
Verdict make_verdict(const Ranking& ranking, const std::vector<LoweredPlan>& judged, size_t workers);

}  // namespace nlsplit::inline ranking
