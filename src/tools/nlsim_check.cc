#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/interrupts.h"
#include "planning/load.h"
#include "report/ranking/check_report.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/outputs.h"
#include "tools/rank_options.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

struct CheckArguments {
  std::string scenario, json;
  PlanChoice choice;
};

// The plan of a file, one of the scenario's, or all of these.
Result<std::vector<UserPlan>> asked_for(const CheckArguments& arguments, const Scenario& scenario) {
  if (!arguments.choice.file.empty()) {
    ASSIGN_OR_RETURN(UserPlan own, read_plan_file(arguments.choice.file));
    if (own.name.empty()) own.name = arguments.choice.file;
    return std::vector<UserPlan>{std::move(own)};
  }
  if (scenario.plans.empty())
    return invalid_input(fmt::format("{} has no plans of its own: name one with --plan-file FILE", scenario.file));
  if (arguments.choice.plan.empty()) return scenario.plans;
  std::string names;
  for (const UserPlan& plan : scenario.plans) {
    if (plan.name == arguments.choice.plan) return std::vector<UserPlan>{plan};
    names += (names.empty() ? "" : ", ") + plan.name;
  }
  return invalid_input(fmt::format("{} has no plan called {}; it has {}", scenario.file, arguments.choice.plan, names));
}

// Each reason once: other micro-batches mostly have the same.
void report_troubles(const CheckedPlan& checked) {
  std::set<std::string> said;
  for (const PlanTrouble& trouble : checked.troubles) {
    if (said.insert(trouble.error.message).second) report(trouble.error);
  }
}

// Whether all of them can be run.
Result<bool> check(const CheckArguments& arguments) {
  if (!is_scenario(arguments.scenario))
    return invalid_input(fmt::format("{}: check needs a scenario (*.yaml)", arguments.scenario));
  RETURN_IF_ERROR(check_outputs({arguments.json}));
  ASSIGN_OR_RETURN(const Loaded loaded, load(arguments.scenario, 1));
  ASSIGN_OR_RETURN(const std::vector<UserPlan> plans, asked_for(arguments, loaded.scenario));
  catch_interrupts();
  nlohmann::json answers = nlohmann::json::array();
  std::string text;
  bool sound = true;
  for (const UserPlan& plan : plans) {
    auto checked = check_own_plan(loaded.scenario, loaded.model, plan, terminal_options());
    clear_progress();
    write_after_interrupt();
    if (!checked) return checked.error();
    answers.push_back(check_json(*checked, loaded.scenario, loaded.model.graph));
    if (checked->ranking) {
      text += (text.empty() ? "" : "\n") + check_text(*checked);
      continue;
    }
    sound = false;
    report_troubles(*checked);
  }
  if (!arguments.json.empty()) {
    const nlohmann::json file = {
        {"format", "nlsplit-check"}, {"version", 1}, {"scenario", arguments.scenario}, {"plans", std::move(answers)}};
    const std::string answer = file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (arguments.json != "-") {
      RETURN_IF_ERROR(write_file(arguments.json, answer));
    } else {
      std::fputs(answer.c_str(), stdout);
      return sound;
    }
  }
  std::fputs(text.c_str(), stdout);
  return sound;
}

}  // namespace

void add_check_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("check",
                                         "Say what is wrong with a plan of your own; or how fast it is, its place in "
                                         "the ranking, what limits it, and what\n"
                                         "the best plan does better.\n"
                                         "  nlsim check scenarios/split_height.yaml --plan-file mine.yaml");
  const auto arguments = std::make_shared<CheckArguments>();
  command->add_option("SCENARIO", arguments->scenario, "A scenario")->type_name("FILE")->required();
  CLI::Option* plan =
      command->add_option("--plan", arguments->choice.plan, "One of the scenario's plans (default: each of them)")
          ->type_name("NAME");
  command->add_option("--plan-file", arguments->choice.file, "A plan in a file of its own (docs/plans.md)")
      ->type_name("FILE")
      ->excludes(plan);
  command->add_option("--json", arguments->json, "Write the answer as JSON to this file, - for standard output")
      ->type_name("FILE");
  command->footer("Exit code 2 if a plan cannot be run.");
  command->callback([arguments, &code] {
    const Result<bool> sound = check(*arguments);
    if (!sound)
      code = report(sound.error());
    else if (interrupted())
      code = exit_interrupted;
    else if (!*sound)
      code = 2;
  });
}

}  // namespace nlsplit::inline tools
