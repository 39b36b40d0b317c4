// How much work it is to lower a plan, in layers.
#pragma once

#include <cstddef>

#include "partition/search.h"
#include "ranking/rank_context.h"

namespace nlsplit::inline ranking {

// Of training a layer is so many: its forward pass, and the gradients by its input and its weights.
inline constexpr size_t layers_of_a_step = 3;

// Its layers, counted for each replica.
size_t layers_lowered(const Plan& plan);
size_t layers_lowered(const ScoredPlan& scored);  // and within stages that are split inside their layers

// What lower() takes: less on shorter networks.
size_t work_of(const RankContext& context, const ScoredPlan& scored);
// What lowering all plans may take.
size_t most_work(const Scenario& scenario);
// Whether lowering a plan takes too long, where plans that search found before it took so many layers, and those with
// splits inside layers `inside`.
bool too_much_work(const RankContext& context, const ScoredPlan& scored, size_t layers, size_t inside);

}  // namespace nlsplit::inline ranking
