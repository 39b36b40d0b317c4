// Commands that run in the threads of one process or as one rank of several: `nlbench session`, `nlbench generate`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

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

// One rank's error on all of them.
Status agree_on(Transport& transport, const Status& mine);

// What rank 0 has read; on the others nothing. Error, the same on all ranks: what reading it said.
template <class Read>
auto read_on_first(Transport& transport, const Read& read) -> Result<std::optional<std::decay_t<decltype(*read())>>> {
  std::optional<std::decay_t<decltype(*read())>> made;
  Status mine;
  if (transport.rank() == 0) {
    auto result = read();
    if (result)
      made.emplace(std::move(*result));
    else
      mine = result.error();
  }
  RETURN_IF_ERROR(agree_on(transport, mine));
  return made;
}
// What the transport asks for, and the exit code; errors are said once. in_threads: all ranks of this process; as_rank:
// this one.
int run_ranks(const RanksArguments& arguments, const std::function<Status()>& in_threads,
              const std::function<Status(Transport&)>& as_rank);

}  // namespace nlsplit::inline tools
