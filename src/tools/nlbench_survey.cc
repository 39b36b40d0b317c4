// `nlbench survey`: what some machines are, how fast, and what messages between them take. `nlsim init` makes a
// scenario of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/file.h"
#include "base/interrupts.h"
#include "measure/survey.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_job.h"
#include "tools/nlbench_ranks.h"
#include "tools/outputs.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

struct SurveyArguments {
  std::string output, gpu_backend;
  SurveyRequest request;
  RanksArguments ranks;
};

Status survey_ranks(const SurveyArguments& arguments, Transport& transport) {
  const bool first = transport.rank() == 0;
  SurveyOptions options{interrupted, arguments.gpu_backend};
  if (first) options.progress = show_progress;
  RETURN_IF_ERROR(agree_on(transport, first ? check_outputs({arguments.output}) : ok_status()));
  Result<Survey> survey = run_survey(first ? &arguments.request : nullptr, transport, options);
  clear_progress();
  if (!survey) return agree_on(transport, survey.error());
  Status written;
  if (first) {
    survey->transport = arguments.ranks.transport->name;
    if (arguments.output == "-")
      std::fputs(to_json(*survey).c_str(), stdout);
    else
      written = write_file(arguments.output, to_json(*survey));
  }
  return agree_on(transport, written);
}

int survey(const SurveyArguments& arguments) {
  const auto in_threads = [&]() -> Status {
    const auto world = arguments.ranks.transport->make_world(1, bytes(0), nullptr);
    return survey_ranks(arguments, world->endpoint(0));
  };
  const auto as_rank = [&](Transport& transport) { return survey_ranks(arguments, transport); };
  constexpr double interrupt_s = 3;  // a kernel under way
  return run_ranks(arguments.ranks, run_options(arguments.ranks), in_threads, as_rank, interrupt_s, WorkerTask::survey);
}

}  // namespace

void add_survey_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "survey",
      "Measure machines (cores, caches, memory, kernels, GPUs, speed) and messages between them.\n"
      "  mpirun --map-by ppr:1:node --bind-to none --host a,b,c,d nlbench survey -o survey.json     a rank on each "
      "machine\n"
      "  nlbench survey --transport grpc --workers b:7000,c:7000 --tls keys -o survey.json\n"
      "  nlbench survey --transport threads -o survey.json                       this machine alone\n"
      "Then  nlsim init --survey survey.json -o mine.yaml  makes a scenario of it; `nlsim init --hosts a,b,c,d` does "
      "both.\n"
      "Takes a few seconds for each machine and each pair: all pairs of up to 8 machines, with more each machine and "
      "those 1, 2,\n"
      "4, 8, … places away. Nothing else should run meanwhile.");
  const auto a = std::make_shared<SurveyArguments>();
  command->add_option("-o,--output", a->output, "The survey to write (.json); - is standard output")->required();
  command->add_option("--names", a->request.names, "Names of the hosts, by rank (default: each host's own)")
      ->delimiter(',')
      ->type_name("NAME,...");
  command->add_option("--cores", a->request.cores, "How many cores of each host to use, by rank; 0: all (default)")
      ->delimiter(',')
      ->check(not_negative())
      ->type_name("COUNT,...");
  command->add_option("--gpu-backend", a->gpu_backend,
                      "Module that computes on GPUs (default: libbackend_cuda.so beside nlbench)");
  add_ranks_options(*command, a->ranks);
  command->callback([a, &code] { code = survey(*a); });
}

}  // namespace nlsplit::inline tools
