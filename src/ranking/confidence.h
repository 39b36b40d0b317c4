// Error bars of plans, and the set that holds the best plan with a given probability. From the costs of each plan in
// many Monte Carlo draws (ranking/worlds.h).
#pragma once

#include <cstddef>
#include <vector>

namespace nlsplit::inline ranking {

// Plans within this factor of the best remaining one count as equally good. They are ordered by the memory that they
// leave free.
inline constexpr double as_good = 1.005;

// Quantiles of an interval's ends: equally many worlds are below it and above it.
inline constexpr double bar_low = 0.05, bar_high = 0.95;

struct ErrorBar {
  double low = 0, high = 0;                        // cost_of: quantiles bar_low and bar_high over the worlds
  double difference_low = 0, difference_high = 0;  // of cost / plan 1's cost in the same world - 1
  double best = 0;                                 // part of the worlds in which no plan is better (as_good)
  // Index of the first plan of its rank: this plan is worse than that one (as_good) in less than `level` of the worlds.
  size_t rank = 0;
};

struct Confidence {
  double level = 0;  // asked for
  size_t worlds = 0;
  std::vector<ErrorBar> plans;  // as Ranking::judged
  // The plans to measure: in `covered` of the worlds, at least `level`, one of them is as good as the best of all. A
  // greedy cover: each step adds the plan that is best in most of the remaining worlds. Plans that turn out to be
  // redundant are removed.
  std::vector<size_t> set;
  double covered = 0;
};

// costs: [plan][world], plans in the order of their ranking. At least one of each.
Confidence confidence_of(const std::vector<std::vector<double>>& costs, double level);

}  // namespace nlsplit::inline ranking
