// Is splitting worth it? The best split held against one machine and against copies of the whole model.
#pragma once

#include <vector>

#include "ranking/ranking.h"

namespace nlsplit {

Result<Verdict> make_verdict(const Scenario& scenario, const std::vector<PreparedModel>& prepared,
                             const CostTable& costs, const Ranking& ranking);

}  // namespace nlsplit
