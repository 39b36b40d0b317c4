// Is splitting worth it, for throughput, for latency, for memory; and if not, what stands in the way?
#pragma once

#include <string>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

// What plans are ordered by: "throughput", "time of each token (TPOT)".
std::string objective_name(const Ranking& ranking);

// "420 Mbit/s" if all links are alike, else "0.42 times today's bandwidth".
std::string bandwidth_at(const Scenario& scenario, double factor);

// A small table, a sentence that answers, and the reasons. Every line ends in a newline.
std::string verdict_text(const Ranking& ranking, const Scenario& scenario);

// What keeps plan `index` of the judged ones from being faster than it is: a device, a link, or waiting. One sentence.
std::string bound_by_text(const Ranking& ranking, size_t index);

}  // namespace nlsplit::inline reports
