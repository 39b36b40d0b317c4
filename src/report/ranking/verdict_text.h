// Is splitting worth it, for throughput, for latency, for memory; and if not, what stands in the way?
#pragma once

#include <string>

#include "ranking/ranking.h"

namespace nlsplit {

// A small table, a sentence that answers, and the reasons. Every line ends in a newline.
std::string verdict_text(const Ranking& ranking, const Scenario& scenario);

}  // namespace nlsplit
