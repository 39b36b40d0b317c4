// Local search: small changes to the best plans, each timed by the fast tier. Split stages, their shares and where they
// end are too many to list.
#pragma once

#include <vector>

#include "ranking/fitting_plans.h"
#include "ranking/search_plans.h"

namespace nlsplit::inline ranking {

// Adds the changed plans that fit. Does nothing where search has looked at all kinds of plans.
Status refine(const RankContext& context, const SearchSpace& space, FittingPlans& fitting,
              std::vector<RankedBaseline>& baselines, Tally& tally);

}  // namespace nlsplit::inline ranking
