// Commands that run in the threads of one process or as one rank of several: `nlbench session`, `nlbench train`,
// `nlbench generate`, `nlbench serve`, `nlbench survey`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "exec/run_session.h"
#include "exec/run_threads.h"
#include "exec/transports/transports.h"
#include "tools/launch_options.h"
#include "tools/nlbench_job.h"
#include "tools/nlbench_worker_job.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct RanksArguments {
  const TransportKind* transport = &all_transports().front();
  double watchdog_s = 10, heartbeat_s = 10;
  std::string polling = "auto";
  Remote remote;
  HostsArguments hosts;
};
// --transport, --workers, --tls, --polling, --watchdog, --heartbeat, --hosts, --places.
void add_ranks_options(CLI::App& command, RanksArguments& arguments);
RunOptions run_options(const RanksArguments& arguments);  // with interrupts and notices

// The answer to --hosts, for who starts the ranks: print_hosts of the session, or nothing where no launcher starts
// them. The exit code.
int print_session_hosts(const JobArguments& arguments, const RanksArguments& ranks, bool for_training = false);

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
// this one. options: of the session that they run, which workers are told. interrupt_s: so long what is under way may
// still take after an interrupt (catch_interrupts). task: what workers run.
int run_ranks(const RanksArguments& arguments, const RunOptions& options, const std::function<Status()>& in_threads,
              const std::function<Status(Transport&)>& as_rank, double interrupt_s = 1,
              WorkerTask task = WorkerTask::session);

// The session that rank 0 has, over all ranks or in the threads of this process.
using RunOnRanks =
    std::function<Result<SessionResult>(const Session& session, const Job& job, const ChooseNext& choose)>;

// What run_ranks answers for a session that rank 0 alone reads, chooses, and speaks of: read() -> Result<T>; use(T,
// RunOnRanks) -> Status.
template <class Read, class Use>
int run_session_command(const RanksArguments& arguments, const RunOptions& options, const Read& read, const Use& use,
                        double interrupt_s = 1) {
  const auto in_threads = [&]() -> Status {
    ASSIGN_OR_RETURN(auto made, read());
    return use(made, [&](const Session& session, const Job& job, const ChooseNext& choose) {
      return run_session_threads(session, job, choose, options, arguments.transport->make_world);
    });
  };
  // All ranks come to the same answer.
  const auto as_rank = [&](Transport& transport) -> Status {
    ASSIGN_OR_RETURN(auto made, read_on_first(transport, read));
    if (!made) {
      const Result<SessionResult> result = run_session(nullptr, Job{}, choose_from({}), transport, options);
      return agree_on(transport, result ? ok_status() : Status(result.error()));
    }
    bool ran = false;
    Status used = use(*made, [&](const Session& session, const Job& job, const ChooseNext& choose) {
      ran = true;
      return run_session(&session, job, choose, transport, options);
    });
    if (!ran && !used.ok()) {  // the others wait for a session
      transport.abort(used.error());
      return used;
    }
    return agree_on(transport, used);
  };
  return run_ranks(arguments, options, in_threads, as_rank, interrupt_s);
}

}  // namespace nlsplit::inline tools
