// Prompts beside tokens, of scenarios that generate: what the cost of a plan is made of.
#pragma once

#include "partition/search.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// What search says of a plan, from what it says of an execution for tokens and of one for prompts.
ScoredPlan with_prompts(const Scenario& scenario, const ScoredPlan& tokens, const ScoredPlan& prompts);

// The same of an estimate by the fast tier.
Estimate with_prompts(const Scenario& scenario, const Estimate& tokens, const Estimate& prompts);

}  // namespace nlsplit::inline ranking
