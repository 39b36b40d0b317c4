// One candidate, timed by the fast tier, which knows no contention.
#pragma once

#include <optional>
#include <vector>

#include "ranking/candidate.h"
#include "ranking/rank_context.h"
#include "ranking/tally.h"

namespace nlsplit::inline ranking {

struct Timed {
  KeptPlan lowered;                  // of `estimate`'s plan, if it is kept
  std::optional<Estimate> estimate;  // none: it cannot be, for the reason below. Of generation: what the cost is of
  double prompt_s = 0, token_s = 0;
  double noise_factor = 0;
  std::optional<Plan> recomputing;   // what the plan has become: stages recompute, or it would not fit
  std::optional<Plan> without_idle;  // the plan without the devices that have nothing to do
  std::optional<Error> trouble;      // it cannot be lowered
  std::optional<Misfit> too_large;   // a device's memory is too small
};

// kept: gets the lowered plan if it is among the best so far; nullptr: none is kept. Several threads may ask.
Timed time_candidate(const RankContext& context, const Goal& goal, const Candidate& candidate, KeptPlans* kept);

// Counts it in the tally, as one of those that cannot be if it cannot, and keeps its times in the candidate.
Status note_timed(const RankContext& context, const Timed& timed, Candidate& candidate,
                  std::vector<RankedBaseline>& baselines, Tally& tally);

// What candidates are ordered by; smaller is better.
double fast_score(const Scenario& scenario, const Goal& goal, const Candidate& candidate, const Estimate& estimate);
void set_scores(const Scenario& scenario, const Goal& goal, const Estimate& estimate, Candidate& candidate);

}  // namespace nlsplit::inline ranking
