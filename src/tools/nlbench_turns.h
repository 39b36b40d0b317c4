// Several plans interleaved on the ranks of one launch: what `nlbench validate` starts. A file has a line for each
// turn, with the ranks of the plan's devices in order:
//
//   run p1 p1.0 0 1       runs DIR/p1 on ranks 0 and 1 and writes its figures to DIR/p1.0.json
//   run p7 p7.0 1         DIR/p7, which has one device, on rank 1; if it fails, DIR/p7.0.error has the reason
//   generate p2 p2.0 0 1  DIR/p2 is a session, and generates text
//
// With --turn-traces DIR/p1.0.trace has a trace of the turn.
//
// While a turn runs the other ranks sleep. A rank that is lost ends the launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/transport.h"
#include "tools/nlbench_run_options.h"

namespace nlsplit::inline tools {

struct Turn {
  bool generates = false;
  std::string folder, figures;  // within the set
  std::vector<int> ranks;
};
std::string to_text(const std::vector<Turn>& turns);
// Errors name `file` and the line.
Result<std::vector<Turn>> parse_turns(const std::string& text, const std::string& file);

// Of `arguments`, whose `job.what` has the folders: the turns of its file, and what `nlbench run` does in one of them.
Result<std::vector<Turn>> read_turns(const RunArguments& arguments);
RunArguments of_turn(const RunArguments& arguments, const Turn& turn);
// Error: a rank that is not there; names `file`.
Status check_members(const Turn& turn, int ranks, const std::string& file);
// A plan that fails is no reason to stop: why stands in a file beside the others' figures.
Status note_failure(const RunArguments& arguments, const Turn& turn, const Status& status);

// All ranks call it. `run` runs one turn on its ranks; a plan that fails does not keep the others from their turns.
Status run_turns(const RunArguments& arguments, Transport& transport,
                 const std::function<Status(const Turn&, const RunArguments&, Transport&)>& run);
// With all ranks in this process.
Status run_turns_here(const RunArguments& arguments,
                      const std::function<Status(const Turn&, const RunArguments&)>& run);

}  // namespace nlsplit::inline tools
