// The first phase: the plans that search finds for each micro-batch count, and what it knows of others like them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "partition/plan_scorer.h"
#include "ranking/candidate.h"
#include "ranking/rank_context.h"
#include "ranking/tally.h"

namespace nlsplit::inline ranking {

// What search says of the network on this cluster.
struct SearchSpace {
  std::vector<NoRoom> no_room;       // devices that it left out
  size_t devices = 0;                // that it looked at
  bool proved = false;               // Ranking's
  std::vector<double> node_shares;   // Ranking's
  std::optional<SearchCosts> costs;  // of the fewest micro-batches
  std::vector<size_t> class_of;      // interchangeable_devices, by these costs
  std::unique_ptr<const Network> network;
  // Borrow `network`. One for each micro-batch count if layers may be split or prompts matter, else none.
  std::vector<std::unique_ptr<PlanScorer>> scorers;
  std::map<int, std::unique_ptr<PlanScorer>> prompt_scorers;  // by micro-batches, where prompts matter
};

struct FoundPlans {
  SearchSpace space;
  std::vector<Candidate> candidates;
  std::vector<RankedBaseline> baselines;
};

// Adds to the tally's space. Errors: the search's, a missing cost.
Result<FoundPlans> search_plans(const RankContext& context, Tally& tally);

}  // namespace nlsplit::inline ranking
