// The baselines' plans, as a table below the verdict.
#pragma once

#include <string>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

std::string baselines_text(const Ranking& ranking, const Scenario& scenario);  // empty if they were not asked for

}  // namespace nlsplit::inline reports
