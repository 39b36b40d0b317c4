// A plan's turn in a validation of text generation (tools/nlbench_turns.h): random prompts of the scenario's length,
// each followed by the scenario's number of tokens, repeated until the turn's time is over.
#pragma once

#include "tools/nlbench_run_options.h"

namespace nlsplit::inline tools {

// Writes arguments.json, the figures of a run (validate/results.h): in place of makespans the mean time of each token
// (TPOT) in each text, in place of the latency the mean time to the first token (TTFT). All ranks call it.
Status run_generation_turn(const RunArguments& arguments, const RunOptions& options, Transport& transport);
// With all ranks in this process.
Status run_generation_turn_here(const RunArguments& arguments, const RunOptions& options);

}  // namespace nlsplit::inline tools
