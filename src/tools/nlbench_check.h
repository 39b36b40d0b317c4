// `--check`: a plan may change speed, never results. Compares each output of a run with that of the unsplit network.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/comparison.h"
#include "exec/run.h"
#include "tools/nlbench_job.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

// The options --check and --tolerance.
void add_check_options(CLI::App& command, bool& check, double& tolerance);

// Runs the unsplit Program here, in this process: once, or so many `steps` of training. `outputs`: of the plan's run.
// `tolerance` < 0: what the saved Program promises; where devices
// differ in their instruction level (whose roundings differ) mixed_levels_tolerance, or rounding_tolerance of halves,
// if that is more. Errors: the unsplit run failed; an output is missing or has another type.
inline constexpr double mixed_levels_tolerance =
    1e-3;  // the bound that imported networks are held to against other programs
Result<Comparison> check_against_unsplit(const LoadedJob& job, const std::vector<OutputTensor>& outputs, int steps,
                                         double tolerance, const RunOptions& options);

// The same of a session after these choices: outputs and states as they are in the end. job: of the session. `saved`
// has the unsplit Programs.
Result<Comparison> check_against_unsplit(const SavedSession& saved, const Job& job, std::span<const Choice> choices,
                                         const std::vector<OutputTensor>& outputs, double tolerance,
                                         const RunOptions& options);

}  // namespace nlsplit::inline tools
