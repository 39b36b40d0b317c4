// The fast tier times the candidates that may be among the best; those that fit in their devices' memory go on.
#pragma once

#include <memory>
#include <vector>

#include "ranking/fast_tier.h"
#include "ranking/pruning.h"

namespace nlsplit::inline ranking {

struct FittingPlans {
  std::vector<Candidate> candidates;  // with their scores
  std::vector<Estimate> estimates;    // of each
  Goal goal;                          // what a weighted objective is relative to: the best single device among them
  Pruning pruning;                    // what the timed plans say of others
  std::unique_ptr<KeptPlans> kept;    // the best, lowered; none: no plan has a score before all are timed
};

// node_shares: Ranking's. Error: none fits, or one of the user's own cannot be.
Result<FittingPlans> time_candidates(const RankContext& context, std::vector<Candidate> candidates,
                                     const std::vector<double>& node_shares, std::vector<RankedBaseline>& baselines,
                                     Tally& tally);

}  // namespace nlsplit::inline ranking
