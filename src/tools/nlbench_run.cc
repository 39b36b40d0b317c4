#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/temporary_folder.h"
#include "base/units.h"
#include "exec/collectives.h"
#include "exec/run_threads.h"
#include "measure/launch.h"
#include "program/text.h"
#include "report/chrome_trace.h"
#include "schedule/pipeline_csv.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_crashes.h"
#include "tools/nlbench_generation_turn.h"
#include "tools/nlbench_report.h"
#include "tools/nlbench_run_options.h"
#include "tools/nlbench_steps.h"
#include "tools/nlbench_steps_report.h"
#include "tools/nlbench_turns.h"
#include "tools/nlbench_worker_job.h"
#include "tools/nlbench_worker_turns.h"
#include "tools/option_values.h"
#include "tools/outputs.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

// Rank 0's finished repeats, for when there will be no others. The run may be ended by another thread at any time.
struct Finished {
  std::timed_mutex mutex;
  std::optional<Program> program;
  std::vector<double> makespans_s;
  bool reported = false;  // all of it: nothing is left to save
};

// Where the flight recorders' files go: as asked, or beside the figures, or here.
std::string flight_dir(const RunArguments& arguments) {
  if (!arguments.turns.empty()) return arguments.job.what + "/flight";
  if (!arguments.flight.empty()) return arguments.flight;
  return arguments.json.empty() ? "nlbench.flight" : arguments.json + ".flight";
}

// The same on all ranks of a launch, another one for the next; null: the launcher (MPICH's) gives it no name.
const char* name_of_launch() { return std::getenv("PMIX_NAMESPACE"); }

std::string run_id() {
  const char* job = name_of_launch();
  return job != nullptr ? job : fmt::format("{}-{}", ::getpid(), std::time(nullptr));
}

// What the ranks of this process did last, for a run that ends before its time. A user who pressed Ctrl-C gets it where
// a place for it was named.
void write_flight(const RunArguments& arguments, FlightRecords& records, Error& why) {
  if (records.empty() || !arguments.turns.empty() ||
      (why.kind != ErrorKind::lost && interrupted() && arguments.flight.empty() && arguments.json.empty()))
    return;
  if (records.write(why.message))
    why.message += fmt::format("\n  what each rank did last stands in {0}: nlbench explain-failure {0}", records.dir());
  else
    why.message += fmt::format("\n  what each rank did last could not be written to {}", records.dir());
}

// On rank 0 of a run that ends before its time.
void save_finished(const RunArguments& arguments, Finished& finished, const std::string& why) {
  // A report that is being written is written first, unless that does not end. The system clock: see exec/waker.h.
  const std::unique_lock lock(finished.mutex, std::chrono::system_clock::now() + std::chrono::seconds(1));
  if (!lock.owns_lock() || finished.reported || finished.makespans_s.empty()) return;
  write_after_interrupt();
  const IncompleteRun run{&*finished.program, finished.makespans_s, std::string(arguments.transport->name), why};
  if (!arguments.json.empty()) {
    if (const Status written = write_file(arguments.json, report_json(run)); !written.ok()) report(written.error());
  }
  std::fputs(report_text(run).c_str(), stdout);
  std::fflush(stdout);
}

Result<RunOptions> options_of(const RunArguments& arguments) {
  RunOptions options;
  options.repeats = arguments.repeats;
  options.warmup = arguments.warmup;
  options.watchdog_s = arguments.watchdog_s;
  options.deadlines = arguments.deadlines;
  options.cancelled = interrupted;
  options.gpu.missing = arguments.gpu_missing == "cpu" ? GpuMissing::cpu : GpuMissing::error;
  options.gpu.backend = arguments.gpu_backend;
  options.gpu.messages = arguments.gpu_messages == "nccl"     ? GpuMessages::nccl
                         : arguments.gpu_messages == "mirror" ? GpuMessages::mirror
                                                              : GpuMessages::direct;
  options.gpu.nccl = arguments.nccl;
  if (!arguments.nccl.empty() && options.gpu.messages != GpuMessages::nccl)
    return invalid_input("--nccl names the library of --gpu-messages nccl, which was not asked for");
  options.gpu.graphs = arguments.gpu_graphs == "off"       ? GpuGraphs::off
                       : arguments.gpu_graphs == "untimed" ? GpuGraphs::untimed
                                                           : GpuGraphs::timed;
  options.notice = [](const std::string& notice) { fmt::print(stderr, "nlbench: {}\n", notice); };
  if (!arguments.duration.empty()) {
    ASSIGN_OR_RETURN(const Seconds duration, time_option("--duration", arguments.duration));
    options.duration_s = duration.value();
  }
  options.states = arguments.check || !arguments.output.empty();
  const int repeats = options.repeats;
  options.after_repeat = [repeats](const Repeat& repeat) {
    show_progress("repeat", static_cast<size_t>(repeat.count), static_cast<size_t>(std::max(repeat.count, repeats)));
    return !interrupted();
  };
  return options;
}

// Before minutes are spent: does --check mean something, and can the answers be written?
Status check_places(const RunArguments& arguments) {
  RETURN_IF_ERROR(check_tolerance(arguments.tolerance));
  return check_outputs({arguments.output, arguments.json, arguments.trace, arguments.decisions});
}

// What a run gives: of repeats, or with --steps of steps.
using Outcome = std::variant<RunResult, SessionResult>;

struct Texts {
  std::string report, json;
};
Texts texts_of(const RunArguments& arguments, const LoadedJob& job, const Outcome& outcome,
               const std::optional<Comparison>& check) {
  const std::string transport(arguments.transport->name);
  if (const auto* steps = std::get_if<SessionResult>(&outcome)) {
    const StepsReport report{&job.saved, steps, transport, check};
    return {report_text(report), report_json(report)};
  }
  const RunReport report{&job.saved, &std::get<RunResult>(outcome), transport, check};
  return {report_text(report), report_json(report)};
}

// Rank 0, after the run: checks, writes, prints. Error also if --check found a difference. `on_overdue`: ends the run,
// because the system does not come back from writing. The check has the deadlines of a run of its own.
Status conclude(const RunArguments& arguments, const LoadedJob& job, const Outcome& outcome, const RunOptions& options,
                Finished& finished, const std::function<void(const Error&)>& on_overdue) {
  clear_progress();
  const auto& outputs = std::visit(
      [](const auto& result) -> const auto& { return result.outputs; }, outcome);
  std::optional<Comparison> check;
  if (arguments.check) {
    ASSIGN_OR_RETURN(check, check_against_unsplit(job, outputs, arguments.steps, arguments.tolerance, options));
  }
  const std::lock_guard lock(finished.mutex);
  Liveness writing;
  writing.begin("the results");
  const Liveness::Work work(writing);
  const WorkWatch watch(writing, {arguments.deadlines, on_overdue});
  if (!arguments.output.empty()) RETURN_IF_ERROR(write_outputs(arguments.output, outputs));
  const Texts texts = texts_of(arguments, job, outcome, check);
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, texts.json));
  if (const auto* result = std::get_if<RunResult>(&outcome)) {
    if (!arguments.trace.empty())
      RETURN_IF_ERROR(write_file(arguments.trace, chrome_trace(job.saved.program, result->trace)));
    if (!arguments.decisions.empty()) {
      const SlotTable table = table_of_slots(job.saved.program, result->decided);
      RETURN_IF_ERROR(write_file(arguments.decisions, to_text(csv_of(table))));
    }
  }
  std::fputs(texts.report.c_str(), stdout);
  std::fflush(stdout);
  finished.reported = true;
  if (check && !check->equal()) return failed("the plan's results are not those of the unsplit network");
  return ok_status();
}

// `looked`: called while the planner is watched.
Result<LoadedJob> begin(const RunArguments& arguments, std::optional<TemporaryFolder>& folder,
                        std::function<void()> looked = nullptr) {
  RETURN_IF_ERROR(check_places(arguments));
  JobArguments job = arguments.job;
  job.planning = {arguments.deadlines.prepare_s, arguments.planning_s, std::move(looked)};
  ASSIGN_OR_RETURN(LoadedJob loaded, load_job(job, folder));
  if (arguments.steps > 0 && !is_training(loaded.saved.program))
    return invalid_input("--steps is for training (workload: {mode: training}), and this is inference");
  if (arguments.steps > 0 && loaded.saved.online)
    return unsupported("--steps: an online policy decides within one step, and steps follow each other as they are");
  return loaded;
}

Job job_of(const LoadedJob& loaded) {
  const SavedProgram& saved = loaded.saved;
  Job job{loaded.contents(), loaded.inputs, saved.clocks, saved.online};
  job.checksums = loaded.checksums();
  if (saved.has_prediction) job.predicted_compute_s = saved.prediction.device_compute_s;
  return job;
}

// No MPI: who starts the ranks asks this before.
Status print_hosts_of(const RunArguments& arguments) {
  std::optional<TemporaryFolder> folder;
  ASSIGN_OR_RETURN(const LoadedJob job, begin(arguments, folder));
  if (arguments.transport->launched_as != nullptr) print_hosts(job.saved.program, arguments.hosts.places);
  return ok_status();
}

void keep_in(Finished& finished, const Program& program, RunOptions& options) {
  finished.program = program;
  options.keep_makespan = [&finished](double makespan_s) {
    const std::lock_guard lock(finished.mutex);
    finished.makespans_s.push_back(makespan_s);
  };
}

Result<Outcome> execute_in_threads(const RunArguments& arguments, const LoadedJob& job, const RunOptions& options) {
  if (arguments.steps > 0) {
    const std::array choices = {Choice{0, arguments.steps}};
    ASSIGN_OR_RETURN(SessionResult result,
                     run_session_threads(session_of_steps(job.saved.program), job_of_steps(job_of(job)),
                                         choose_from(choices), options, arguments.transport->make_world));
    return Outcome(std::move(result));
  }
  ASSIGN_OR_RETURN(RunResult result,
                   run_threads(job.saved.program, job_of(job), options, arguments.transport->make_world));
  return Outcome(std::move(result));
}

// `program`: on rank 0, else nullptr.
Result<Outcome> execute_here(const RunArguments& arguments, const Program* program, const Job& job,
                             Transport& transport, const RunOptions& options) {
  if (arguments.steps > 0) {
    const std::array choices = {Choice{0, arguments.steps}};
    std::optional<Session> session;
    if (program != nullptr) session = session_of_steps(*program);
    ASSIGN_OR_RETURN(SessionResult result, run_session(session ? &*session : nullptr, job_of_steps(job),
                                                       choose_from(choices), transport, options));
    return Outcome(std::move(result));
  }
  ASSIGN_OR_RETURN(RunResult result, run(program, job, transport, options));
  return Outcome(std::move(result));
}

Status run_in_threads(const RunArguments& arguments, RunOptions options, FlightRecords& records) {
  std::optional<TemporaryFolder> folder;
  Finished finished;
  options.flight = &records;
  options.on_failure = [&](Error why) { write_flight(arguments, records, why); };
  const auto on_stuck = [&](Error why) {
    static std::mutex ends;
    ends.lock();  // for good: several devices may be stuck, and the first one ends it
    clear_progress();
    write_flight(arguments, records, why);  // only says where it stands: it has been written
    report(why);
    save_finished(arguments, finished, why.message);
    std::fflush(nullptr);
    std::_Exit(exit_code(why));
  };
  options.on_stuck = on_stuck;
  ASSIGN_OR_RETURN(const LoadedJob job, begin(arguments, folder));
  keep_in(finished, job.saved.program, options);
  const Result<Outcome> result = execute_in_threads(arguments, job, options);
  if (!result) {
    save_finished(arguments, finished, result.error().message);
    Error why = result.error();
    if (exit_code(why) != 2) write_flight(arguments, records, why);
    return why;
  }
  return conclude(arguments, job, *result, options, finished, on_stuck);
}

// All ranks come to the same answer; rank 0 alone reads, writes and prints.
Status run_over_ranks(const RunArguments& arguments, RunOptions options, Transport& transport,
                      std::optional<TemporaryFolder>& folder, Finished& finished) {
  // Without a heartbeat nobody knows whether rank 0 still works.
  Waiting patient{arguments.heartbeat_s > 0 ? arguments.deadlines.prepare_s : 0, interrupted, "the planning"};
  Liveness& liveness = transport.liveness();
  liveness.begin(patient.what);
  std::optional<Result<LoadedJob>> loaded;
  Status mine;
  if (transport.rank() == 0) {
    const Liveness::Work work(liveness);
    const WorkWatch watch(liveness, {arguments.deadlines, [&transport](const Error& why) { transport.abort(why); }});
    loaded.emplace(begin(arguments, folder, [&liveness] { liveness.moved(); }));
    if (!loaded->ok()) mine = loaded->error();
  }
  RETURN_IF_ERROR(agree(transport, mine, patient));
  const Program* const program = transport.rank() == 0 ? &(*loaded)->saved.program : nullptr;
  Job job;
  if (program != nullptr) keep_in(finished, *program, options);
  std::optional<WeightFile> here;  // of a folder that this rank sees as well
  if (transport.rank() == 0) {
    job = job_of(**loaded);
  } else if (auto weights = WeightFile::open(arguments.job.what)) {
    here.emplace(std::move(*weights));
    job.contents = [&here](ContentId id) { return here->bytes(id); };
  }
  ASSIGN_OR_RETURN(const Outcome result, execute_here(arguments, program, job, transport, options));
  patient.what = "the end of the run";
  liveness.begin(patient.what);
  if (transport.rank() == 0) {
    const Liveness::Work work(liveness);
    mine = conclude(arguments, **loaded, result, options, finished,
                    [&transport](const Error& why) { transport.abort(why); });
  }
  return agree(transport, mine, patient);
}

Status run_turns_over_ranks(const RunArguments& arguments, RunOptions options, Transport& transport) {
  options.flight = nullptr;  // a rank of the run has another number in each turn
  return run_turns(arguments, transport, [&](const Turn& turn, const RunArguments& of_turn, Transport& part) {
    if (turn.generates) return run_generation_turn(of_turn, options, part);
    std::optional<TemporaryFolder> folder;
    Finished finished;
    return run_over_ranks(of_turn, options, part, folder, finished);
  });
}

Status run_turns_over_workers(const RunArguments& arguments, RunOptions options, Transport& transport) {
  options.flight = nullptr;
  return lead_turns(arguments, options, transport, [&](const RunArguments& of_turn, Transport& part) {
    std::optional<TemporaryFolder> folder;
    Finished finished;
    return run_over_ranks(of_turn, options, part, folder, finished);
  });
}

int finish(const Status& status, bool speaks) {
  clear_progress();
  if (interrupted()) {
    if (speaks) std::fputs("interrupted\n", stderr);
    return exit_interrupted;
  }
  if (status.ok()) return 0;
  return speaks ? report(status.error()) : exit_code(status.error());
}

// To who supervises the run. Every rank comes to the same end, and any of them may be the one that is heard.
void say_end(const RunArguments& arguments, int code) {
  if (!arguments.supervised.empty()) std::fputs(ended_line(arguments.supervised, code).c_str(), stderr);
}

int run_command(const RunArguments& arguments) {
  const TransportKind& kind = *arguments.transport;
  const LaunchedAs as = kind.launched_as != nullptr ? kind.launched_as() : LaunchedAs{};
  catch_interrupts(1, !as.by_launcher);
  auto options = options_of(arguments);
  if (!options) return report(options.error());
  if (arguments.hosts.asked) return finish(print_hosts_of(arguments), true);
  // Beyond the end of this function: another thread may end the process at any time.
  static FlightRecords records(flight_dir(arguments), run_id());
  record_crashes(records);
  if (kind.make_world != nullptr) {
    const auto one = [&](const Turn& turn, const RunArguments& of_turn) {
      return turn.generates ? run_generation_turn_here(of_turn, *options) : run_in_threads(of_turn, *options, records);
    };
    return finish(arguments.turns.empty() ? one({}, arguments) : run_turns_here(arguments, one), true);
  }

  std::optional<TemporaryFolder> folder;
  TransportOptions start;
  start.polling = polling_of(arguments.polling);
  std::atomic<int> rank{as.rank};
  std::atomic<bool> started{false};
  start.program = "nlbench " NLS_VERSION;
  start.as = as;
  start.heartbeat_s = arguments.heartbeat_s;
  start.start_timeout_s = arguments.start_timeout_s;
  start.notice = options->notice;
  // Without a heartbeat nobody knows whether rank 0 still works.
  const double patience_s = arguments.heartbeat_s > 0 ? arguments.deadlines.prepare_s : 0;
  const WorkerTask task = !arguments.turns.empty() ? WorkerTask::turns
                          : arguments.steps > 0    ? WorkerTask::session
                                                   : WorkerTask::run;
  start.remote = remote_of(arguments.remote, {task, false, patience_s, *options});
  Finished finished;
  start.last_words = [&](Error why, bool speaks) {
    if (started && exit_code(why) != 2) write_flight(arguments, records, why);
    clear_progress();
    if (folder) folder->remove();
    // A rank that is gone makes mpirun end the others: that is no interrupt.
    const bool was_interrupted = interrupted() && why.kind != ErrorKind::lost;
    // Before they know each other each finds out for itself; the first one's end is the others' interrupt.
    if (!started && why.kind == ErrorKind::lost && interrupted()) speaks = false;
    if (speaks && !was_interrupted) report(why);
    if (rank == 0) save_finished(arguments, finished, why.message);
    if (was_interrupted && rank == 0) std::fputs("interrupted\n", stderr);  // all are, at once
    const int code = was_interrupted ? exit_interrupted : exit_code(why);
    if (speaks || rank == 0) say_end(arguments, code);
    return code;
  };
  auto transport = kind.start(std::move(start));
  if (!transport) return report(transport.error());
  rank = (*transport)->rank();
  if (as.by_launcher && name_of_launch() == nullptr) {
    std::string of_first = run_id();
    if (const Status told = broadcast(**transport, &of_first, {patience_s, interrupted, "the name of the run"});
        !told.ok())
      return finish(told, rank == 0);
    records.name_run(std::move(of_first));
  }
  started = true;
  options->flight = &records;
  (*transport)->liveness().record_in(&records.of(rank, (*transport)->size()));
  if (rank == 0 && !arguments.supervised.empty()) std::fputs(started_line(arguments.supervised).c_str(), stderr);
  const Status status = arguments.turns.empty() ? run_over_ranks(arguments, *options, **transport, folder, finished)
                        : kind.of_workers       ? run_turns_over_workers(arguments, *options, **transport)
                                                : run_turns_over_ranks(arguments, *options, **transport);
  say_end(arguments, interrupted() ? exit_interrupted : status.ok() ? 0 : exit_code(status.error()));
  if (interrupted())
    (*transport)->abort(failed("interrupted"));  // the others may be anywhere: not the time for MPI_Finalize
  return finish(status, rank == 0);
}

}  // namespace

void add_run_command(CLI::App& app, int& code) { add_run_options(app, code, run_command); }

}  // namespace nlsplit::inline tools
