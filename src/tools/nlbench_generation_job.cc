#include "tools/nlbench_generation_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

namespace nlsplit::inline tools {

Job GenerationJob::job() const {
  Job job;
  job.contents = [this](ContentId id) { return weights.bytes(id); };
  job.checksums = [this](ContentId id) { return weights.checksum(id); };
  job.inputs = inputs;
  job.clocks = loaded.saved.clocks;
  return job;
}

Result<GenerationJob> read_generation_job(const JobArguments& arguments) {
  std::optional<TemporaryFolder> folder;  // its weights are mapped, and nobody needs it afterwards
  ASSIGN_OR_RETURN(LoadedSession loaded, load_session(arguments, folder));
  RETURN_IF_ERROR(verify_session(loaded.saved.session));
  ASSIGN_OR_RETURN(const GenerationForm form, generation_form(loaded.saved.session));
  if (loaded.weights.empty())
    return invalid_input(fmt::format("{}: a session's text alone has no weights", arguments.what));
  ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(loaded.weights));
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, generation_inputs(loaded.saved.session));
  return GenerationJob{std::move(loaded), std::move(weights), form, std::move(inputs)};
}

void add_generation_job_options(CLI::App& command, JobArguments& arguments) {
  command
      .add_option("WHAT", arguments.what,
                  "A scenario (.yaml), or a folder saved by `nlsim lower S --session --save DIR`")
      ->type_name("FILE")
      ->required();
  CLI::Option* plan = command.add_option(
      "--plan", arguments.plan, "Of a scenario: number in its ranking, or name of one of its plans (default 1)");
  command.add_option("--plan-file", arguments.plan_file, "Of a scenario: a plan in a file of its own")->excludes(plan);
  command.add_option("--nlsim", arguments.nlsim,
                     "Where nlsim is, which plans scenarios and reads models (default: beside nlbench)");
}

Status print_session_hosts(const JobArguments& arguments, bool places) {
  std::optional<TemporaryFolder> folder;
  ASSIGN_OR_RETURN(const LoadedSession loaded, load_session(arguments, folder));
  print_hosts(loaded.saved.session.programs.front(), places);
  return ok_status();
}

}  // namespace nlsplit::inline tools
