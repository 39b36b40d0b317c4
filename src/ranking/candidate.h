// A plan that a ranking looks at: found by search, made by small changes to another, or the user's own.
#pragma once

#include <cstdint>
#include <optional>

#include "partition/search.h"
#include "ranking/kept_plans.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

struct Candidate {
  RankedPlan ranked;
  std::optional<ScoredPlan> found;   // by search, and may be pruned
  double bound = 0;                  // of the objective: seconds no schedule can beat; 0: look at it first
  double fast_score = 0;             // smaller is better
  double noise_factor = 0;           // what noise makes of it, if there is any
  double noisy_score = 0;            // the score under noise
  double prompt_s = 0, token_s = 0;  // of generation, where prompts matter: of an execution, by the fast tier
  KeptPlan lowered;                  // null or empty: it is lowered again where it is judged
  bool must_judge = false;           // the user's own plans, and the plans that splits are compared with (yardsticks)
  uint32_t baselines = 0;            // bit b: the plan of baseline b of all_baselines() (ranking/baseline_plans.h)
};

}  // namespace nlsplit::inline ranking
