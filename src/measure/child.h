// nlbench has no planner (no SimGrid, ONNX or YAML in it): it starts nlsim as a child process and reads the folder it
// saves.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "measure/child_watch.h"

namespace nlsplit::inline measure {

// How a child ended: its exit code, or 128 + the signal that ended it.
struct ChildEnd {
  int code = 0;
  std::string said;  // on stderr, its last 4 KiB; empty unless `quietly`
};

struct ChildOptions {
  bool quietly = false;            // its stderr is kept, not ours
  int on_interrupt = SIGTERM;      // what it gets when we are interrupted
  int on_parents_death = SIGKILL;  // and when we are gone
  // Only quietly, for mpirun, which may wait for ever for hosts that cannot be reached. The `nlbench run` it starts has
  // option --supervised TOKEN and says on stderr, in lines of its own, when its ranks have met and how they ended.
  std::string token = {};    // empty: nothing of this is waited for
  double start_s = 0;        // no line that they have met after so many seconds: it is ended
  double grace_s = 0;        // so long after the line that they ended, too
  ChildLimits limits = {0};  // a child that passes one is ended: an error of kind `lost`; default: none
};

// The lines of `nlbench run --supervised TOKEN`.
std::string started_line(const std::string& token);
std::string ended_line(const std::string& token, int code);

// Runs words[0], looked for in PATH unless it has a '/', and waits. Its stdout is dropped. After an interrupt it is
// asked to end, and killed if it has not 2 s later. Error: it cannot be started, or passed a limit.
Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options = {});

// Our own executable, and its neighbour of another name.
std::string own_program();
std::string neighbour(const std::string& name);

// Runs `nlsim ARGUMENTS…` and waits. Its stderr is ours, its stdout is dropped. `nlsim`: its path; empty: beside our
// own executable. Error: it cannot be started, or it failed (it has said why; the kind keeps its exit code).
Status run_nlsim(const std::string& nlsim, const std::vector<std::string>& arguments, const ChildLimits& limits = {});

}  // namespace nlsplit::inline measure
