// How many distinct computations stand behind a ranking, and where their costs come from.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "ranking/rank_context.h"

namespace nlsplit::inline ranking {

using SeenCosts = std::map<std::pair<std::string, CostOrigin>, double>;  // by signature: its spread

// Of a plan that splits layers: no other has its shards.
void count_costs_of(const Program& program, const Cluster& cluster, const CostTable& costs, SeenCosts& seen);

// As in Ranking.
struct CostCounts {
  size_t measured = 0, predicted = 0, estimated = 0;
  double largest_spread = 0;
};
// Those of the prepared models, and `seen`. One that has no cost is needed by no plan.
CostCounts count_costs(const RankContext& context, SeenCosts seen);

}  // namespace nlsplit::inline ranking
