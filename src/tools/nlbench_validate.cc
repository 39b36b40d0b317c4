// `nlbench validate`: the plans a ranking put first, and some others, run for real and held against their predictions.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/units.h"
#include "report/table.h"
#include "report/validation/validation_report.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_launch.h"
#include "tools/nlbench_machine.h"
#include "tools/terminal.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

struct ValidateArguments {
  std::string scenario, output, nlsim;
  LaunchArguments launch;
  std::string duration = "3s";
  int top = 10, also = 10, rounds = 1;
  uint64_t seed = 1;
};

struct Attempt {
  PlanRun run;
  bool lost_a_rank = false;
};

Result<Attempt> run_plan(const ValidateArguments& arguments, const PredictedPlan& plan, const std::string& set,
                         int round) {
  const std::string figures = set + "/" + plan.folder + ".json";
  std::error_code failure;
  fs::remove(figures, failure);
  ASSIGN_OR_RETURN(const ChildEnd end, launch(arguments.launch, set + "/" + plan.folder, plan.hosts,
                                              {"--json", figures, "--duration", arguments.duration, "--repeats", "3"}));
  Attempt attempt;
  PlanRun& run = attempt.run;
  if (end.code == 0) {
    ASSIGN_OR_RETURN(const std::string text, read_file(figures));
    ASSIGN_OR_RETURN(run, parse_run(text, figures));
    if (run.fingerprint != plan.fingerprint) return failed(fmt::format("{} is of another program", figures));
  } else {
    const Error error = launch_error(end);
    run.error = error.message;
    attempt.lost_a_rank = error.kind == ErrorKind::lost;
  }
  run.fingerprint = plan.fingerprint;
  run.round = round;
  return attempt;
}

// Everything measured so far, as files and on the terminal.
Status conclude(const ValidateArguments& arguments, const PlanSet& set, const ResultsFile& results, size_t losses) {
  const std::vector<ValidatedPlan> plans = join(set, results.runs());
  RETURN_IF_ERROR(write_file(arguments.output + "/report.json", validation_json(set, plans)));
  RETURN_IF_ERROR(write_file(arguments.output + "/report.html", validation_html(set, plans)));
  std::fputs(validation_text(set, plans).c_str(), stdout);
  fmt::print("\n{0}/report.html has the picture, {0}/report.json the figures, {0}/results.jsonl the runs\n",
             arguments.output);
  size_t failures = 0;
  for (const ValidatedPlan& plan : plans) failures += plan.error.empty() ? 0 : 1;
  if (losses > 0)
    return lost(fmt::format("{} lost a rank, and {} of {} plans have no figures; the same command tries those again",
                            counted(static_cast<int64_t>(losses), "run"), failures, plans.size()));
  if (failures > 0) return failed(fmt::format("{} of {} plans failed", failures, plans.size()));
  return ok_status();
}

Status validate(const ValidateArguments& arguments) {
  if (const auto duration = parse_time(arguments.duration); !duration) return duration.error();
  RETURN_IF_ERROR(check(arguments.launch));
  std::error_code failure;
  fs::create_directories(arguments.output, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", arguments.output, failure.message()));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string dir = folder.path() + "/set";
  const auto number = [](uint64_t value) { return fmt::format("{}", value); };
  RETURN_IF_ERROR(run_nlsim(
      arguments.nlsim,
      {"lower", arguments.scenario, "--validation-set", dir, "--top", number(static_cast<uint64_t>(arguments.top)),
       "--also", number(static_cast<uint64_t>(arguments.also)), "--seed", number(arguments.seed)}));
  ASSIGN_OR_RETURN(const std::string text, read_file(dir + "/plans.json"));
  ASSIGN_OR_RETURN(const PlanSet set, parse_plan_set(text, dir + "/plans.json"));
  ASSIGN_OR_RETURN(ResultsFile results,
                   ResultsFile::open(arguments.output + "/results.jsonl", set, describe_machine()));
  // So many failures in a row, and the others will not run either: all need mpirun, and the same hosts.
  constexpr size_t patience = 3;
  size_t done = 0, failures = 0, losses = 0;
  const size_t total = set.plans.size() * static_cast<size_t>(arguments.rounds);
  for (int round = 0; round < arguments.rounds && !interrupted(); ++round) {
    for (const PredictedPlan& plan : set.plans) {
      show_progress("running plans", done++, total);
      if (results.has(plan.fingerprint, round)) continue;
      if (failures >= patience) break;
      const auto attempt = run_plan(arguments, plan, dir, round);
      if (interrupted()) break;
      if (!attempt) return attempt.error();
      failures = attempt->run.error.empty() ? 0 : failures + 1;
      losses += attempt->lost_a_rank ? 1 : 0;
      RETURN_IF_ERROR(results.append(attempt->run));
    }
  }
  clear_progress();
  return conclude(arguments, set, results, losses);
}

}  // namespace

void add_validate_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "validate",
      "Run the best plans of a scenario, and some drawn at random, and hold the predictions against the measurements.\n"
      "  nlbench validate scenarios/mine.yaml -o validation --top 10 --also 40\n"
      "  nlbench validate scenarios/mine.yaml -o validation --mpirun 'mpirun --hostfile hosts' --on-hosts\n"
      "Not itself under mpirun: it starts one for each plan. Each result is kept as soon as it is there; the same "
      "command\n"
      "goes on where an interrupted one stopped, and tries again what failed. A plan whose rank died, was stopped or "
      "cut "
      "off is\n"
      "left out, the next one is run; exit code 3. Three failures in a row end it.");
  const auto a = std::make_shared<ValidateArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario, with costs measured by nlbench profile")->required();
  command->add_option("-o,--output", a->output, "Folder for the results")->required();
  command->add_option("--top", a->top, "So many of the best plans (default 10)")->check(at_least(1));
  command->add_option("--also", a->also, "and so many drawn at random (default 10)")->check(at_least(0));
  command->add_option("--seed", a->seed, "of the drawing (default 1)");
  command->add_option("--rounds", a->rounds, "Run all plans so many times, one after the other (default 1)")
      ->check(at_least(1));
  command->add_option("--duration", a->duration, "Each run goes on for so long, at least 3 executions (default 3s)");
  add_launch_options(*command, a->launch);
  command->add_option("--nlsim", a->nlsim, "Where nlsim is (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts();
    code = end_command(validate(*a));
  });
}

}  // namespace nlsplit
