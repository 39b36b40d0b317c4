// `nlsim hostfile`: which host each rank of a plan belongs on, for whoever starts the ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/file.h"
#include "planning/load.h"
#include "planning/saved_form.h"
#include "program/rank_hosts.h"
#include "program/saved.h"
#include "ranking/session.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/outputs.h"
#include "tools/rank_options.h"

namespace nlsplit::inline tools {
namespace {

struct HostfileArguments {
  std::string what, output = "-";
  PlanChoice choice;
  bool session = false, train = false;
};

// Of a session all Programs have the same devices. Those of a training are not always those of its step alone: the data
// are on its first device.
Result<std::vector<std::string>> hosts_of_scenario(const HostfileArguments& arguments) {
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, 1));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  if (arguments.session || arguments.train) {
    ASSIGN_OR_RETURN(const CompiledSession compiled, arguments.train
                                                         ? training_session(loaded.scenario, loaded.model, chosen.plan)
                                                         : session_of(loaded.scenario, loaded.model, chosen.plan));
    return rank_hosts(compiled.session.programs.front());
  }
  ASSIGN_OR_RETURN(const TimedPlan timed, time_plan(loaded.scenario, loaded.model.graph, chosen.plan));
  return rank_hosts(timed.program);
}

Result<std::vector<std::string>> hosts_of_folder(const HostfileArguments& arguments) {
  if (!arguments.choice.plan.empty() || !arguments.choice.file.empty() || arguments.session || arguments.train)
    return invalid_input(fmt::format(
        "{} holds one plan already: --plan, --plan-file, --session and --train are for scenarios", arguments.what));
  if (is_saved_session(arguments.what)) {
    ASSIGN_OR_RETURN(const SavedSession saved, load_session(arguments.what));
    return rank_hosts(saved.session.programs.front());
  }
  ASSIGN_OR_RETURN(const SavedProgram saved, load_program(arguments.what));
  return rank_hosts(saved.program);
}

Status hostfile(const HostfileArguments& arguments) {
  RETURN_IF_ERROR(check_outputs({arguments.output}));
  ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                   is_scenario(arguments.what) ? hosts_of_scenario(arguments) : hosts_of_folder(arguments));
  std::string text;
  for (const std::string& host : hosts) text += host + "\n";
  if (arguments.output != "-") return write_file(arguments.output, text);
  std::fputs(text.c_str(), stdout);
  return ok_status();
}

}  // namespace

void add_hostfile_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("hostfile",
                         "Print the host of each rank of a plan, a line each: rank r runs the plan's r-th device.\n"
                         "  nlsim hostfile S.yaml --plan 1 -o hosts\n"
                         "  mpirun --map-by seq --hostfile hosts nlbench run S.yaml --plan 1      (Open MPI)\n"
                         "  mpiexec.hydra -f hosts nlbench run S.yaml --plan 1                    (MPICH)\n"
                         "docs/slurm.md has recipes for Slurm.");
  const auto a = std::make_shared<HostfileArguments>();
  command->add_option("WHAT", a->what, "A scenario, or a folder saved by `nlsim lower --save`")->required();
  CLI::Option* plan = command
                          ->add_option("--plan", a->choice.plan,
                                       "Number in the ranking, or name of one of the scenario's plans (default 1)")
                          ->type_name("K|NAME");
  command->add_option("--plan-file", a->choice.file, "A plan in a file of its own")->type_name("FILE")->excludes(plan);
  CLI::Option* train = command->add_flag("--train", a->train, "For a scenario: the ranks of `nlbench train`");
  command
      ->add_flag("--session", a->session,
                 "For a scenario: the ranks of `nlbench session`, `generate` and `serve` (default: of `nlbench run`)")
      ->excludes(train);
  command->add_option("-o,--output", a->output, "The file to write (default: standard output)")->type_name("FILE");
  command->callback([a, &code] {
    if (const Status status = hostfile(*a); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
