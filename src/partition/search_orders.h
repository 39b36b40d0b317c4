// Pipelines over any number of devices, taken in a few orders (partition/device_orders.h). Cuts and replicas come from
// dynamic programming, as in PipeDream (Narayanan et al., SOSP 2019, section 3.1), with unequal devices, each link's
// own speed, memory, and a device that may be left out.
//
// A bound is fill + busiest (partition/score.h). So for each of some values of `busiest` the least fill that goes with
// it is found, and the least share of any device's memory: neither is a sum over stages that the other decides.
// Of a model of many layers the cuts are those of its repeated blocks (partition/repeats.h); then each cut moves within
// its neighbouring blocks, devices unchanged.
#pragma once

#include "partition/search_methods.h"

namespace nlsplit::inline partition {

// Their order means nothing. Never `proved`. No stage's weights are more than a device's memory.
Result<FoundPlans> search_orders(const SearchSpace& space);

}  // namespace nlsplit::inline partition
