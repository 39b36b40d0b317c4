// Error bars of plans, and the plans among which the best one is. From what each plan costs in each of many worlds
// (ranking/worlds.h).
#pragma once

#include <cstddef>
#include <vector>

namespace nlsplit::inline ranking {

// Plans no worse than this many times the best of those left are as good: they stand in the order of the memory they
// leave, and none of them is better.
inline constexpr double as_good = 1.005;

// Half of the worlds that an interval leaves out are below it.
inline constexpr double bar_low = 0.05, bar_high = 0.95;

struct ErrorBar {
  double low = 0, high = 0;                        // cost_of: quantiles bar_low and bar_high over the worlds
  double difference_low = 0, difference_high = 0;  // of cost / plan 1's cost in the same world - 1
  double best = 0;                                 // part of the worlds in which no plan is better (as_good)
  // Index of the first plan of its rank: in less than `level` of the worlds this one is worse than that (as_good).
  size_t rank = 0;
};

struct Confidence {
  double level = 0;  // asked for
  size_t worlds = 0;
  std::vector<ErrorBar> plans;  // as Ranking::judged
  // Few plans of which one is as good as the best of all in `covered` of the worlds, at least `level`: those to
  // measure. Plan after plan that is best in the most worlds left (a greedy cover), without what is not needed in the
  // end.
  std::vector<size_t> set;
  double covered = 0;
};

// costs: [plan][world], plans in the order of their ranking. At least one of each.
Confidence confidence_of(const std::vector<std::vector<double>>& costs, double level);

}  // namespace nlsplit::inline ranking
