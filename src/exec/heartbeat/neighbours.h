// Which ranks of a run watch each other. Few ranks watch all others. Of many, rank r watches those at a distance of 1,
// 2, 4, … on both sides, counted round: so each has O(log n) connections, and what one of them learns reaches all
// others in at most hops_between() steps, each rank telling those it watches.
#pragma once

#include <vector>

namespace nlsplit::inline exec {

inline constexpr int most_watching_all = 17;  // ranks; of 18 each watches 8

std::vector<int> neighbours(int rank, int ranks);  // ascending, without the rank itself
int hops_between(int ranks);                       // the most between two of them; at least 1

}  // namespace nlsplit::inline exec
