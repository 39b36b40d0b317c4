// `--check`: a plan may change speed, never results. Compares a run's outputs with those of the unsplit network.
#pragma once

#include <string>
#include <vector>

#include "exec/run.h"
#include "tools/nlbench_job.h"

namespace nlsplit {

struct Comparison {
  int64_t values = 0;
  int64_t different = 0;          // their bits differ
  double largest_difference = 0;  // absolute; infinite where one is NaN and the other is not
  double largest_value = 0;       // of the unsplit run
  double tolerance = 0;           // allowed, relative to largest_value; 0: bit for bit
  std::string why = {};           // there is a tolerance; empty: the user asked for it
  bool equal() const { return different == 0 || (tolerance > 0 && largest_difference <= tolerance * largest_value); }
};

// Adds the differences of values that should be the same.
void compare(const std::vector<float>& got, const std::vector<float>& want, Comparison& into);

// Runs the unsplit Program here, in this process. `tolerance` < 0: what the saved Program promises; where devices
// differ in their instruction level (whose roundings differ) mixed_levels_tolerance, or rounding_tolerance of halves,
// if that is more. Errors: the unsplit run failed; an output is missing or has another type.
inline constexpr double mixed_levels_tolerance =
    1e-3;  // the bound that imported networks are held to against other programs
Result<Comparison> check_against_unsplit(const LoadedJob& job, const RunResult& result, double tolerance,
                                         const RunOptions& options);

std::string to_string(const Comparison& comparison);

}  // namespace nlsplit
