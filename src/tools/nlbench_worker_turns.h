// Turns (nlbench_turns.h) on ranks that share no disk: rank 0 has all files, and need not be among a turn's ranks. A
// turn's first rank gets its Program, inputs' seeds, clocks and weights from rank 0, runs it with the other ranks of
// the turn as rank 0 of a run does, and answers with the figures.
//
//   rank 0:        lead_turns(arguments, options, transport, run_here)
//   every worker:  follow_turns(transport, options)
#pragma once

#include <functional>

#include "exec/run.h"
#include "exec/transport.h"
#include "tools/nlbench_run_options.h"

namespace nlsplit::inline tools {

// run_here: a turn whose first rank is this one. A plan that fails does not keep the others from their turns.
Status lead_turns(const RunArguments& arguments, const RunOptions& options, Transport& transport,
                  const std::function<Status(const RunArguments&, Transport&)>& run_here);
Status follow_turns(const RunOptions& options, Transport& transport);

}  // namespace nlsplit::inline tools
