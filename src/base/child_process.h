// Child processes that die with their parent, however it ends.
//
//   ASSIGN_OR_RETURN(const pid_t child, start_child({"nlsim", "rank", "s.yaml"}, {.out = no_file}));
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline base {

// In a child, right after the fork: the kernel sends it `signal` once the thread that forked has ended. `parent`: who
// forked, as getpid() told it before; if it is gone already, the child ends here.
void die_with(pid_t parent, int signal = SIGKILL);

struct ChildFiles {
  int in = -1, out = -1, err = -1;  // -1: as ours; no_file: /dev/null
  int on_parents_death = SIGKILL;   // SIGTERM for who has children of its own to end
};
inline constexpr int no_file = -2;

// Starts words[0], looked for in PATH unless it has a '/'. Error: why it cannot be started.
Result<pid_t> start_child(const std::vector<std::string>& words, const ChildFiles& files = {});

// Whether there is such a program in one of the folders of PATH.
bool is_in_path(const std::string& program);

enum class Heard { out, out_and_err };  // else its stderr is ours
struct ChildOutput {
  std::string text;  // its first 64 MiB
  int code = 0;      // its exit code, or 128 + the signal that ended it
};
// Starts a program as start_child does, and waits. It gets SIGTERM when we end. Error: why it cannot be started.
Result<ChildOutput> output_of(const std::vector<std::string>& words, Heard heard = Heard::out);

// "signal 9 (Killed), by somebody or by the kernel for want of memory"
std::string describe_signal(int signal);

}  // namespace nlsplit::inline base
