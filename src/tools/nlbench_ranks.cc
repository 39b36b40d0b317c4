#include "tools/nlbench_ranks.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <utility>

#include "base/interrupts.h"
#include "base/temporary_folder.h"
#include "exec/collectives.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"

namespace nlsplit::inline tools {
namespace {

constexpr double agree_patience_s = 300;  // rank 0 plans, and reads files

int end_of_ranks(const Status& status, bool speaks) {
  if (interrupted()) {
    if (speaks) std::fputs("interrupted\n", stderr);
    return exit_interrupted;
  }
  if (status.ok()) return 0;
  return speaks ? report(status.error()) : exit_code(status.error());
}

}  // namespace

void add_ranks_options(CLI::App& command, RanksArguments& arguments) {
  add_transport_option(command, arguments.transport);
  add_remote_options(command, arguments.remote);
  add_polling_option(command, arguments.polling);
  command
      .add_option("--watchdog", arguments.watchdog_s,
                  "Give up, with exit code 3, when no device computes and nothing is sent or received for this many "
                  "seconds; 0: never (default 10)")
      ->check(not_negative());
  command
      .add_option(
          "--heartbeat", arguments.heartbeat_s,
          "This many seconds after a rank is lost all others have ended, with exit code 3; 0: never (default 10)")
      ->check(not_negative());
  add_hosts_options(command, arguments.hosts);
}

int print_session_hosts(const JobArguments& arguments, const RanksArguments& ranks, bool for_training) {
  catch_interrupts(1, true);  // so that the folder of weights goes
  std::optional<TemporaryFolder> folder;
  const Result<LoadedSession> loaded = load_session(arguments, folder, for_training);
  if (!loaded) return end_command(loaded.error());
  if (ranks.transport->launched_as != nullptr) print_hosts(loaded->saved.session.programs.front(), ranks.hosts.places);
  return end_command(ok_status());
}

RunOptions run_options(const RanksArguments& arguments) {
  RunOptions options;
  options.watchdog_s = arguments.watchdog_s;
  options.cancelled = interrupted;
  options.notice = [](const std::string& notice) { fmt::print(stderr, "nlbench: {}\n", notice); };
  return options;
}

Status agree_on(Transport& transport, const Status& mine) {
  return agree(transport, mine, {agree_patience_s, interrupted, "rank 0's files"});
}

int run_ranks(const RanksArguments& arguments, const RunOptions& options, const std::function<Status()>& in_threads,
              const std::function<Status(Transport&)>& as_rank, double interrupt_s, WorkerTask task) {
  const bool threads = arguments.transport->make_world != nullptr;
  catch_interrupts(interrupt_s, threads);
  if (threads) return end_of_ranks(in_threads(), true);
  std::atomic<bool> is_first{false};
  TransportOptions start;
  start.last_words = [&is_first](const Error& why, bool speaks) {
    // A rank that is gone makes mpirun end the others: that is no interrupt.
    if (why.kind == ErrorKind::lost || !interrupted()) return speaks ? report(why) : exit_code(why);
    if (is_first) std::fputs("interrupted\n", stderr);
    return exit_interrupted;
  };
  start.program = "nlbench " NLS_VERSION;
  start.heartbeat_s = arguments.heartbeat_s;
  start.polling = polling_of(arguments.polling);
  start.remote = remote_of(arguments.remote, {task, true, agree_patience_s, options});
  auto transport = arguments.transport->start(std::move(start));
  if (!transport) return report(transport.error());
  is_first = (*transport)->rank() == 0;
  const Status status = as_rank(**transport);
  if (interrupted())
    (*transport)->abort(failed("interrupted"));  // the others may be anywhere: not the time for MPI_Finalize
  return end_of_ranks(status, is_first);
}

}  // namespace nlsplit::inline tools
