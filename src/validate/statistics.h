// The quality of a ranking, by measurements.
//
// Errors are relative to the measured value. Order and regret are of scores, by the scenario's objective. The order of
// two plans counts only if their measurements differ by more than the sum of their spreads; the order of other pairs is
// chance.
//   Kendall's tau  (pairs in the predicted order - pairs against it) / pairs that count    Kendall, Biometrika 30, 1938
//   Spearman's rho the correlation of ranks, equal ones sharing their mean                 Spearman, Am. J. Psych. 15,
//   1904
//   regret         how much worse than the best measured plan the best of the first k predicted ones is
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace nlsplit::inline validation {

// Of values in any order, linear between neighbours; q in [0, 1]. Expects at least one.
double quantile(std::vector<double> values, double q);

// Smaller is better. spread: half the distance between the quartiles of what was measured.
struct Figure {
  double predicted = 0, measured = 0, spread = 0;
};

// One plan.
struct Outcome {
  Figure makespan;                  // seconds for the whole batch
  Figure latency;                   // seconds; mean of a micro-batch
  Figure score;                     // by the scenario's objective: order and regret are of scores
  std::vector<double> scores = {};  // [run]
};

struct Quantiles {
  double median = 0, p90 = 0, max = 0;
};

struct Range {
  double low = 0, high = 0;
};

struct Agreement {
  double tau = 0;
  size_t pairs = 0;  // that differ clearly; 0: nothing could be said
};

struct Quality {
  size_t plans = 0;
  Quantiles throughput_error, latency_error;  // relative, absolute values
  double spread = 0;                          // of the scores: median over the plans, relative
  Agreement all, near_best;                   // near_best: plans measured within 10 % of the best
  double spearman = 0;                        // of all plans
  bool best_first = false;                    // the first predicted one is the best, or no clearly worse one
  double regret_1 = 0, regret_5 = 0;          // relative
  // Of regret_1, if every plan has at least three runs: 9 of 10 draws of as many runs of each plan, with replacement,
  // lie between (bootstrap: Efron, Ann. Stat. 7, 1979).
  std::optional<Range> regret_range;
};

inline constexpr double near_best = 0.10;

Quantiles quantiles_of(const std::vector<double>& values);  // of at least one

// None without at least two plans.
std::optional<Quality> quality_of(std::span<const Outcome> outcomes);

double spearman(std::span<const double> a, std::span<const double> b);

}  // namespace nlsplit::inline validation
