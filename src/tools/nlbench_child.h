// nlbench has no planner (no SimGrid, ONNX or YAML in it): it starts nlsim as a child process and reads the folder it
// saves.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/nlbench_child_watch.h"

namespace nlsplit {

// A new folder under the system's place for temporary files; gone with this value.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();
  void remove();
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder() = default;
  std::string path_;
};

// How a child ended: its exit code, or 128 + the signal that ended it.
struct ChildEnd {
  int code = 0;
  std::string said;  // on stderr, its last 4 KiB; empty unless `quietly`
};

struct ChildOptions {
  bool quietly = false;  // its stderr is kept, not ours
  // Only quietly, for mpirun, which may wait for ever for hosts that cannot be reached. Once it has said "error: ", it
  // is ended after so many seconds, if it has not itself; 0: never.
  double grace_s = 0;
  // And if this file does not exist after so many seconds; empty: any start is in time.
  std::string sign_of_start = {};
  double start_s = 0;
  ChildLimits limits = {0};  // a child that passes one is ended: an error of kind `lost`; default: none
};

// Runs words[0], looked for in PATH unless it has a '/', and waits. Its stdout is dropped. A Ctrl-C that reached us
// alone is passed on. Error: it cannot be started, or passed a limit.
Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options = {});

// Our own executable, and its neighbour of another name.
std::string own_program();
std::string neighbour(const std::string& name);

// Runs `nlsim ARGUMENTS…` and waits. Its stderr is ours, its stdout is dropped. `nlsim`: its path; empty: beside our
// own executable. Error: it cannot be started, or it failed (it has said why; the kind keeps its exit code).
Status run_nlsim(const std::string& nlsim, const std::vector<std::string>& arguments, const ChildLimits& limits = {});

}  // namespace nlsplit
