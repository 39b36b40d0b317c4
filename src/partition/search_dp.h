// Search by dynamic programming over (cut, devices used of each class, devices of the last stage): the plan with the
// best bottleneck bound (partition/score.h). Instead of trying all plans it drops partial plans that another one
// dominates.
//
//   cut after layer 5, used A and one of {B, C, D}, last stage on A:
//     fill 12 ms, busiest device 80 ms, lanes [a>sw 40 ms, sw>b 10 ms]      two partial plans; the second is worse
//     fill 13 ms, busiest device 85 ms, lanes [a>sw 40 ms, sw>b 12 ms]      in every respect: dropped
//
// The bound is fill + the most that a device or link direction is busy beyond its part of the fill. Both are sums over
// stages and over the messages between them, so that of two partial plans in the same state the one that is no better
// in any of the sums is never the start of the better plan (dominance, as in Martins, "On a multicriteria shortest path
// problem", EJOR 16, 1984). What is left is cut off by a lower bound of the rest: its layers on the quickest device
// each, spread evenly over the devices that are left.
//
// Exact, `proved`, for chains: models in which every value is read in the next layer only, inputs in the first, and
// outputs are made in the last. Elsewhere a value that skips a stage is charged to the link of the next stage, as in
// the beam search, and the bound of what is found is the true one, but another plan may have a better one. Exact also
// only if the device sets are few (up to 256: 8 different devices, or many of a few classes). Else stages take runs of
// 1, 2, 4, … devices in the cluster's order and may leave out any number; models of very many layers
// are cut at the cheapest of neighbouring cuts; and of very many similar partial plans only the best are kept.
// Stages whose weights alone exceed a device's memory are left out.
#pragma once

#include "partition/search_methods.h"

namespace nlsplit::inline partition {

// The best plan, those it met on the way whose bounds are not much worse, and what the beam search finds: later tiers
// look at more than the bound.
Result<FoundPlans> search_dp(const SearchSpace& space);

}  // namespace nlsplit::inline partition
