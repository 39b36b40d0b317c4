// Checks a plan of the user's own: can it be run, and what is its place among the plans that the search finds?
//
//   ASSIGN_OR_RETURN(CheckedPlan checked, check_own_plan(scenario, model, own, {}));
//   if (!checked.ranking) … checked.troubles[0].error …        // it cannot; else it is checked.ranking->judged[place]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// Why the plan cannot be run with one of its micro-batch counts and schedules.
struct PlanTrouble {
  int micro_batches = 0;  // 0: with any number
  std::string schedule;   // empty: under any
  Error error;            // names the layer, the device or the link; at the plan's place in its file
};

struct CheckedPlan {
  std::string name;
  std::string text;  // to_string(plan, …); empty: its stages cannot be read
  std::vector<PlanTrouble> troubles;
  std::optional<Ranking> ranking;  // of the found plans and this one; none: the plan cannot be run
  size_t place = 0;                // of its best count and schedule: index into ranking->judged
};

// `troubles` has what is wrong with the plan: stages that cannot be read, a layer that cannot be split in this way, too
// little memory, a missing link, a schedule that does not exist for the plan, a cost that was not measured. Errors are
// of the ranking itself.
Result<CheckedPlan> check_own_plan(const Scenario& scenario, const Model& model, const UserPlan& own,
                                   const RankOptions& options);

}  // namespace nlsplit::inline ranking
