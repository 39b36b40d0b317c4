// The candidates that the judging tier simulates: the best, those that the verdict compares, and random samples.
#pragma once

#include <vector>

#include "ranking/fitting_plans.h"

namespace nlsplit::inline ranking {

// Best first by the fast tier. baselines: the best plan of each is among them.
std::vector<Candidate> choose_finalists(const RankContext& context, FittingPlans fitting, bool many_yardsticks,
                                        std::vector<RankedBaseline>& baselines);

}  // namespace nlsplit::inline ranking
