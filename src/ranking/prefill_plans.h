// Plans that compute prompts on some machines and tokens on others (compile/hand_over.h): of the plans that are timed,
// those that are good at the one and those that are good at the other are put together where both may be better.
#pragma once

#include <vector>

#include "ranking/rank_context.h"

namespace nlsplit::inline ranking {

// The best first. judged: with their times of generation. node_shares: Ranking's.
std::vector<Plan> plans_with_prefill(const RankContext& context, const std::vector<RankedPlan>& judged,
                                     const std::vector<double>& node_shares);

}  // namespace nlsplit::inline ranking
