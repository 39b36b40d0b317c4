// Weights of devices, as the lower bounds of a ranking use them: devices with the same times share one.
#pragma once

#include <vector>

namespace nlsplit::inline ranking {

struct WeightedKind {
  const std::vector<double>* seconds = nullptr;  // [node]
  bool inside = false;                           // a side that devices may be on
  double count = 0;                              // devices
};

// seconds_of: [device][node], outlives the answer. inside: [device]; empty: none is.
std::vector<WeightedKind> weighted_kinds(const std::vector<std::vector<double>>& seconds_of,
                                         const std::vector<bool>& inside = {});

// Of the `most` devices with the largest weights. weights: [kind].
double largest_sum(const std::vector<WeightedKind>& kinds, const std::vector<double>& weights, double most);

// The best where one device is so many times as fast as another in everything. Empty: a device takes no time at all.
std::vector<double> fair_weights(const std::vector<WeightedKind>& kinds);

// The factor of a weight in a subgradient step (round 0, 1, …): a device or link that is busy for longer than the
// bound gets a larger weight.
double better_weight(int round, double busy, double bound);

}  // namespace nlsplit::inline ranking
