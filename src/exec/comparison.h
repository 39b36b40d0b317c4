// Results against those of the unsplit network, output by output.
//
//   Comparison comparison{{compare(got, want, "scores")}, 1e-4, "partial sums are added in the order of the shards"};
//   if (!comparison.equal()) fmt::print("{}\n", to_string(comparison));
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline exec {

// One output against the same of the unsplit network.
struct OutputComparison {
  std::string name = {};
  int64_t values = 0;
  int64_t different = 0;          // their bits differ
  int64_t not_finite = 0;         // NaN or infinite, and not so in the unsplit network, or the other way round
  int64_t first_not_finite = -1;  // the place of the first of them
  double largest_difference = 0;  // absolute, of values that are finite in both
  double largest_value = 0;       // finite, of the unsplit network
  bool is_roundings = false;      // in both runs: with a tolerance there is nothing to compare (rounding_gradients.h)

  // tolerance: relative to largest_value; 0: bit for bit.
  bool equal(double tolerance) const {
    if (tolerance > 0 && is_roundings && not_finite == 0) return true;
    return different == 0 || (tolerance > 0 && not_finite == 0 && largest_difference <= tolerance * largest_value);
  }
};

// Of values that should be the same. Where both are NaN, or infinite with one sign, they are within any tolerance above
// 0.
OutputComparison compare(const std::vector<float>& got, const std::vector<float>& want, std::string name = {});

// Each output is judged by itself: a large one must not hide errors of a small one.
struct Comparison {
  std::vector<OutputComparison> outputs;
  double tolerance = 0;  // of each output, relative to its own largest value; 0: bit for bit
  std::string why = {};  // there is a tolerance; empty: the user asked for it
  bool equal() const {
    return std::ranges::all_of(outputs, [this](const OutputComparison& o) { return o.equal(tolerance); });
  }
};

// More than this is no check: values that are off by a tenth of the largest one change the order of a classifier's
// answers, and a plan that drops a bias or a whole layer of a residual network can stay below it. Rounding alone never
// comes near it: bfloat16's bound, the largest that a plan promises, is 8e-2 (rounding_tolerance).
inline constexpr double largest_tolerance = 0.1;
Status check_tolerance(double tolerance);

// A line for each output that is not equal bit for bit.
std::string to_string(const Comparison& comparison);

}  // namespace nlsplit::inline exec
