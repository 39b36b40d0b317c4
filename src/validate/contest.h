// The best of the plans that ran, by sequential elimination: rounds are added until one plan is left or all left are
// equal. Plans are compared by the logarithms of their scores in the same rounds, under the same disturbances.
//
//   const Contest contest = hold_contest(plans, runs, {.confidence = 0.9, .looks = 8});
//   contest.left                         // plans that may be the best; clearly worse ones are out
//   contest.ends()                       // one is left, or all are within `equal_within`
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "validate/results.h"

namespace nlsplit::inline validation {

inline constexpr double equal_within = 0.005;  // relative
inline constexpr size_t least_pairs = 5;       // common rounds of two plans, before they are compared

struct ContestOptions {
  double confidence = 0.9;  // that the best plan is among those left, at every look
  int looks = 1;            // the most times that the contest is held
};

struct Contestant {
  size_t plan = 0;  // index into the set's plans
  size_t pairs = 0;
  double worse_by = 0;     // than the leader, relative; 0 for the leader
  double uncertainty = 0;  // the truth is within worse_by ± uncertainty; infinite with too few pairs
  double least() const { return worse_by - uncertainty; }
  double most() const { return worse_by + uncertainty; }
};

struct Contest {
  double confidence = 0;
  size_t leader = 0;
  std::vector<Contestant> left;  // the leader first, then by worse_by
  std::vector<Contestant> out;
  bool ends() const;
};

// By Student's t with the union bound over plans and looks (Bonferroni). None: no plan has run.
std::optional<Contest> hold_contest(const PlanSet& set, const std::vector<PlanRun>& runs,
                                    const ContestOptions& options);

// Student's t for a one-sided probability p of at least 0.5 and this many degrees of freedom, at least 4: Abramowitz
// and Stegun, Handbook of Mathematical Functions, 26.7.5 with 26.2.23 for the normal distribution. Within 2 % up to p =
// 0.9995, from 10 degrees of freedom on within 0.1 %.
double student_quantile(double p, double degrees);

}  // namespace nlsplit::inline validation
