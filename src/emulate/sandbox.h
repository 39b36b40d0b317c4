// Sandbox: a small world of processes that lives and dies with this program. Each place of a network is a network
// namespace in it, with the switch between them.
//
//   SandboxOptions options{.head = 0, .command = {"ping", "-c1", "b"}};
//   const Result<int> code = run_sandbox(network, options);
//
// All of it is in a PID namespace whose first process dies with this one, however that ends (SIGKILL too), and takes
// all others along; namespaces and files (a private /dev/shm) exist only in it. So nothing can be left behind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emulate/places.h"

namespace nlsplit::inline emulation {

// A private file system inside. The program `on` in its bin/ runs a command in another place: `on b ping a`. mpirun
// starts its daemons with it, in place of ssh.
inline constexpr const char* sandbox_folder = "/dev/shm/nlsplit";

struct SandboxOptions {
  size_t head = 0;                                 // place where the command runs
  std::vector<std::string> command;                // looked up in PATH
  std::map<std::string, std::string> files;        // name and content, in sandbox_folder
  std::map<std::string, std::string> environment;  // set for the command
  bool ctrl_c_ends = false;  // the command means to end on Ctrl-C: killed if it does not. A shell does not mean to
  bool quiet = false;        // no line on stderr about what the switch did
};

// Error: what is missing.
Status can_sandbox();

// The exit code of the command, 128 + n if signal n ended it. Errors: what could not be set up.
Result<int> run_sandbox(const EmulatedNetwork& network, const SandboxOptions& options);

// The program `on`: goes to a place of the sandbox it is in and becomes a shell that runs the words as one line, as ssh
// does. Returns only with an error.
Error run_on_place(const std::string& place, const std::vector<std::string>& words);

}  // namespace nlsplit::inline emulation
