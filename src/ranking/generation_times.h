// The judged plans of a scenario that generates, timed as sessions that take prompts and make tokens.
#pragma once

#include <vector>

#include "ranking/judged_plans.h"

namespace nlsplit::inline ranking {

// Times all that are judged, adds plans with prefill (ranking/prefill_plans.h), and orders them all by their times. A
// plan whose prompts need more memory than its tokens do may fit no longer: it stays without times, behind the others.
Status judge_generations(const RankContext& context, const std::vector<double>& node_shares, JudgedPlans& judged,
                         Tally& tally);

}  // namespace nlsplit::inline ranking
