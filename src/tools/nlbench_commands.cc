#include "tools/nlbench_commands.h"

#include "base/interrupts.h"
#include "tools/exit.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {

int end_command(const Status& status) {
  clear_progress();
  if (interrupted()) return exit_interrupted;
  return status.ok() ? 0 : report(status.error());
}

}  // namespace nlsplit::inline tools
