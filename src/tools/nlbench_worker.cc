#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "base/child_process.h"
#include "base/interrupts.h"
#include "exec/collectives.h"
#include "exec/grpc/transport_grpc.h"
#include "exec/run_session.h"
#include "measure/survey.h"
#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_ranks.h"
#include "tools/nlbench_worker_job.h"
#include "tools/nlbench_worker_turns.h"

namespace nlsplit::inline tools {
namespace {

struct WorkerArguments {
  std::string listen, credentials, gpu_backend, polling = "auto";
  bool once = false;
};

// What every rank but the first does in `nlbench run` and in the commands that run sessions.
Status take_part(const WorkerArguments& arguments, Transport& transport, WorkerJob job) {
  RunOptions& options = job.options;
  options.cancelled = interrupted;
  options.gpu.backend = arguments.gpu_backend;
  options.notice = [](const std::string& notice) { fmt::print(stderr, "nlbench worker: {}\n", notice); };
  RETURN_IF_ERROR(agree(transport, ok_status(), {job.patience_s, interrupted, "rank 0's files"}));
  const auto run_it = [&]() -> Status {
    switch (job.task) {
      case WorkerTask::session:
        RETURN_IF_ERROR(run_session(nullptr, Job{}, choose_from({}), transport, options));
        break;
      case WorkerTask::survey:
        RETURN_IF_ERROR(run_survey(nullptr, transport, {interrupted, arguments.gpu_backend}));
        break;
      case WorkerTask::turns:
        RETURN_IF_ERROR(follow_turns(options, transport));
        break;
      case WorkerTask::run:
        RETURN_IF_ERROR(run(nullptr, Job{}, transport, options));
    }
    return ok_status();
  };
  Status ran = run_it();
  if (!ran.ok() && !job.agrees_on_failure) return ran;
  return agree(transport, ran, {job.patience_s, interrupted, "the end of the run"});
}

// One run, in this process, which ends with it. 2: it cannot wait for any.
int work_once(const WorkerArguments& arguments) {
  catch_interrupts(1, true);
  auto worker = GrpcWorker::open(arguments.listen, arguments.credentials, "nlbench " NLS_VERSION);
  if (!worker) return report(worker.error());
  const std::string host = arguments.listen.substr(0, arguments.listen.rfind(':'));
  fmt::print(stderr, "nlbench worker: waits at {}:{}\n", host, (*worker)->port());
  TransportOptions options;
  options.polling = polling_of(arguments.polling);
  options.last_words = [](const Error& why, bool speaks) {
    if (interrupted() && why.kind != ErrorKind::lost) return exit_interrupted;
    if (speaks) report(why);
    const int code = exit_code(why);
    return code == 2 ? 1 : code;
  };
  const int no_run = 1;  // rank 0 says what is wrong
  auto assigned = (*worker)->wait(std::move(options), interrupted);
  if (interrupted()) return exit_interrupted;
  if (!assigned) {
    report(assigned.error());
    return no_run;
  }
  fmt::print(stderr, "nlbench worker: rank {} of {}\n", assigned->transport->rank(), assigned->transport->size());
  auto job = parse_worker_job(assigned->job);
  if (!job) assigned->transport->abort(job.error());
  const Status status = take_part(arguments, *assigned->transport, std::move(*job));
  if (interrupted()) assigned->transport->abort(failed("interrupted on a worker"));
  if (status.ok()) return 0;
  const int code = exit_code(status.error());
  return code == 2 ? no_run : code;
}

// A process for each run: whatever happens in one ends with it.
int work_on(const WorkerArguments& arguments) {
  std::vector<std::string> words = {"/proc/self/exe", "worker",    "--once",         "--listen",
                                    arguments.listen, "--polling", arguments.polling};
  for (const auto& [option, value] :
       {std::pair{"--tls", arguments.credentials}, std::pair{"--gpu-backend", arguments.gpu_backend}}) {
    if (value.empty()) continue;
    words.emplace_back(option);
    words.push_back(value);
  }
  catch_interrupts(5, true);
  while (!interrupted()) {
    const auto child = start_child(words, {.on_parents_death = SIGTERM});
    if (!child) return report(child.error());
    int status = 0;
    while (::waitpid(*child, &status, WNOHANG) == 0) {
      if (interrupted()) ::kill(*child, SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return 2;  // it has said why it cannot wait
    if (interrupted()) break;
    if (WIFSIGNALED(status)) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // in case each one does
      fmt::print(stderr, "nlbench worker: a run ended by {}\n", describe_signal(WTERMSIG(status)));
    } else {
      fmt::print(stderr, "nlbench worker: a run ended{}\n",
                 WEXITSTATUS(status) == 0 ? "" : fmt::format(", exit code {}", WEXITSTATUS(status)));
    }
  }
  return exit_interrupted;
}

}  // namespace

void add_worker_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "worker",
      "Wait for runs that another machine starts, and compute one device's part of each.\n"
      "  nlbench certificates -o keys                                       once; copy the folder to each machine\n"
      "  nlbench worker --listen 0.0.0.0:7000 --tls keys                    on machines b and c\n"
      "  nlbench run S.yaml --transport grpc --workers b:7000,c:7000 --tls keys          on machine a: rank 0\n"
      "The network and its weights come from rank 0. A worker reads and writes no files for a run, and checks what it "
      "receives.\n"
      "Without --tls a worker listens only on its own machine. Ctrl-C ends it.");
  const auto a = std::make_shared<WorkerArguments>();
  command
      ->add_option("--listen", a->listen,
                   "Address to listen at: HOST:PORT, or 0.0.0.0:PORT for all networks; port 0: any free one")
      ->required();
  command
      ->add_option("--tls", a->credentials,
                   "Folder with ca.crt, node.crt, node.key and secret (nlbench certificates): both sides show "
                   "certificates of one authority, and\nrank 0 the secret")
      ->type_name("DIR");
  command->add_option("--gpu-backend", a->gpu_backend,
                      "Module that computes on GPUs (default: libbackend_cuda.so beside nlbench)");
  add_polling_option(*command, a->polling);
  command->add_flag("--once", a->once, "End after one run, with its exit code");
  command->callback([a, &code] { code = a->once ? work_once(*a) : work_on(*a); });
}

}  // namespace nlsplit::inline tools
