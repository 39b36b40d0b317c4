// One plan of the user's own: can it be run, and where does it stand among those that search finds?
//
//   ASSIGN_OR_RETURN(CheckedPlan checked, check_own_plan(scenario, model, own, {}));
//   if (!checked.ranking) … checked.troubles[0].error …        // it cannot; else it is checked.ranking->judged[place]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// Why the plan cannot be run in one of the ways that it asks for.
struct PlanTrouble {
  int micro_batches = 0;  // 0: in none
  std::string schedule;   // empty: under none
  Error error;            // names the layer, the device or the link; at the plan's place in its file
};

struct CheckedPlan {
  std::string name;
  std::string text;  // to_string(plan, …); empty: its stages cannot be read
  std::vector<PlanTrouble> troubles;
  std::optional<Ranking> ranking;  // of the found plans and this one; none: it cannot be run in any way
  size_t place = 0;                // of its best way: index into ranking->judged
};

// What is wrong with the plan stands in `troubles`: stages that cannot be read, a layer that cannot be split so,
// memory, a link that is missing, a schedule that does not exist for it, a cost that was not measured. Errors: the
// ranking.
Result<CheckedPlan> check_own_plan(const Scenario& scenario, const Model& model, const UserPlan& own,
                                   const RankOptions& options);

}  // namespace nlsplit::inline ranking
