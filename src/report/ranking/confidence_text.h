// Error bars of a ranking, for people.
#pragma once

#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

// The cells of a plan beside its figure: its rank, the interval of the figure plans are ordered by, and that of its
// difference to plan 1. Ranking::confidence is there.
std::vector<std::string> error_bar_cells(const Ranking& ranking, size_t plan);

// Of the head: what the error bars are made of, or why there are none. Empty: nobody asked for them.
std::string error_bars_line(const Ranking& ranking, const Scenario& scenario);

// "measure  plans 1, 4 and 9: …". Empty without error bars.
std::string confidence_text(const Ranking& ranking);

}  // namespace nlsplit::inline reports
