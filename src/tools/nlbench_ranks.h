// Commands that run in the threads of one process or as one rank of several: `nlbench session`, `nlbench generate`.
#pragma once

#include <functional>
#include <string>

#include "exec/run.h"
#include "exec/transports/transports.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct RanksArguments {
  const TransportKind* transport = &all_transports().front();
  double watchdog_s = 10, heartbeat_s = 10;
  std::string polling = "auto";
};
// --transport, --polling, --watchdog, --heartbeat.
void add_ranks_options(CLI::App& command, RanksArguments& arguments);
RunOptions run_options(const RanksArguments& arguments);  // with interrupts and notices

// What the transport asks for, and the exit code; errors are said once. in_threads: all ranks of this process; as_rank:
// this one.
int run_ranks(const RanksArguments& arguments, const std::function<Status()>& in_threads,
              const std::function<Status(Transport&)>& as_rank);

}  // namespace nlsplit::inline tools
