// Is splitting worth it? The best split held against one machine and against copies of the whole model.
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// judged: the lowered plans of ranking.judged, in its order. workers: cores that share the work.
Verdict make_verdict(const Ranking& ranking, const std::vector<LoweredPlan>& judged, size_t workers);

}  // namespace nlsplit::inline ranking
