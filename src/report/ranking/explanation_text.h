// A Ranking's explanations in sentences, one set for each kept plan, with its drawing.
#pragma once

#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

// "Bound by stage 2 on B, 97 % busy; …", "It pays above 420 Mbit/s, …", "Plan 2 takes 1.8 % longer: …"
std::vector<std::string> explanation_sentences(const Ranking& ranking, const Scenario& scenario,
                                               const Explanation& explanation);

// What plan `b` does otherwise than plan `a`: "it has 16 micro-batches instead of 8".
std::string difference(const RankedPlan& a, const RankedPlan& b, const Cluster& cluster);

std::string explanations_text(const Ranking& ranking, const Scenario& scenario);  // empty if they were not asked for

}  // namespace nlsplit::inline reports
