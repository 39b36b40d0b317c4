#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/interrupts.h"
#include "partition/search_methods.h"
#include "planning/gpu_kernels.h"
#include "planning/load.h"
#include "report/ranking/ranking_report.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/next_command.h"
#include "tools/outputs.h"
#include "tools/rank_options.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

struct RankArguments {
  std::string scenario, json, csv, html, save_plans, method;
  int top = 0;
  double confidence = 0;  // 0: not asked for
  bool has_seed = false;
  bool robust = false, baselines = false, explain = false;
  uint64_t seed = 1;
  const Tier* tier = &simgrid_tier();
};

// PATH, or "-" for standard output.
Status write_to(const std::string& path, const std::string& text) {
  if (path != "-") return write_file(path, text);
  std::fputs(text.c_str(), stdout);
  return ok_status();
}

Status save_plans(const std::string& dir, const Ranking& ranking, const Loaded& loaded) {
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", dir, failure.message()));
  std::vector<size_t> plans = kept(ranking);
  for (const size_t i : ranking.order) {
    if (ranking.judged[i].own && std::ranges::find(plans, i) == plans.end()) plans.push_back(i);
  }
  for (const size_t i : plans) {
    const RankedPlan& ranked = ranking.judged[i];
    UserPlan own;
    own.name = ranked.own ? ranked.plan.name : fmt::format("plan{}", i + 1);
    own.stages = stage_parts(ranked.plan, loaded.model.graph, loaded.scenario.cluster);
    own.micro_batches = {ranked.plan.micro_batches};
    own.schedule = ranked.plan.schedule;
    RETURN_IF_ERROR(write_file(fmt::format("{}/{:02}.yaml", dir, i + 1), plan_file_text(own)));
  }
  return ok_status();
}

Status rank(const RankArguments& arguments) {
  if (!is_scenario(arguments.scenario)) {
    return invalid_input(
        fmt::format("{}: rank needs a scenario (*.yaml); scenarios/quickstart.yaml is one", arguments.scenario));
  }
  if (arguments.json == "-" && arguments.csv == "-") {
    return invalid_input("--json - and --csv - would both go to standard output: give one of them a file");
  }
  RETURN_IF_ERROR(check_outputs({arguments.json, arguments.csv, arguments.html}));
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.scenario, 1));
  if (arguments.top > 0) loaded.scenario.keep = arguments.top;
  if (!arguments.method.empty()) loaded.scenario.search.method = arguments.method;
  if (arguments.has_seed) loaded.scenario.search.seed = arguments.seed;
  catch_interrupts();
  RankOptions options = terminal_options();
  options.tier = arguments.tier;
  options.noise = true;
  options.robust = arguments.robust;
  options.baselines = arguments.baselines;
  options.all_sequences = true;
  options.error_bars = true;
  if (arguments.confidence > 0) options.confidence = arguments.confidence;
  options.explain = arguments.explain || !arguments.html.empty();
  auto ranking = rank_plans(loaded.scenario, loaded.model, options);
  clear_progress();
  write_after_interrupt();
  if (!ranking) return in_scenario(ranking.error(), loaded.scenario);
  if (!arguments.json.empty()) {
    RETURN_IF_ERROR(write_to(arguments.json, ranking_json(*ranking, loaded.scenario, loaded.model.graph)));
  }
  if (!arguments.csv.empty()) RETURN_IF_ERROR(write_to(arguments.csv, ranking_csv(*ranking)));
  if (!arguments.html.empty()) {
    RETURN_IF_ERROR(write_file(arguments.html, ranking_html(*ranking, loaded.scenario)));
    if (!arguments.explain) ranking->explanations.clear();
  }
  if (!arguments.save_plans.empty()) RETURN_IF_ERROR(save_plans(arguments.save_plans, *ranking, loaded));
  if (arguments.json != "-" && arguments.csv != "-") {
    ASSIGN_OR_RETURN(const std::string note, gpu_kernels_note(loaded));
    const std::string_view phases =
        loaded.scenario.training
            ? "phases: F forward, I gradients of inputs, W gradients of weights, R forward again, step update\n"
            : "";
    fmt::print("{}{}{}", note, phases, ranking_text(*ranking, loaded.scenario, program_here("nlbench")));
  }
  return ok_status();
}

}  // namespace

void add_rank_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("rank",
                                         "Rank split plans of a scenario by simulation (docs/search.md)\n"
                                         "  nlsim rank scenarios/quickstart.yaml\n"
                                         "  nlsim rank scenarios/mine.yaml --explain --html page.html");
  const auto arguments = std::make_shared<RankArguments>();
  command->add_option("SCENARIO", arguments->scenario, "A scenario, e.g. scenarios/quickstart.yaml")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--top", arguments->top,
                   "Show this many plans instead of the scenario's `keep` (--plan K counts in the table without --top)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command
      ->add_option("--seed", arguments->seed,
                   "Seed of the search, if it cannot try all plans (--plan K counts in the table without --seed)")
      ->check(at_least(0))
      ->type_name("NUMBER");
  command->add_flag("--robust", arguments->robust,
                    "Order by what 95 of 100 runs reach under the scenario's `noise` (plans keep their numbers)");
  command->add_flag(
      "--baselines", arguments->baselines,
      "Also what the rules of other programs would choose (even layers, by memory, torchgpipe, PipeDream, METIS; of "
      "generation llama.cpp, exo, cake, distributed-llama, prima.cpp, Parallax, Megatron; of training that splits "
      "layers Megatron too)");
  add_confidence_option(
      *command, arguments->confidence,
      "Name the plans among which the best one is with this probability, by the spreads of the costs: "
      "those to measure");
  std::vector<std::string> methods;
  std::string about = "How to search:";
  for (const SearchMethod& method : search_methods()) {
    methods.emplace_back(method.name);
    about += fmt::format(" {} ({}){}", method.name, method.what, methods.size() < search_methods().size() ? ";" : "");
  }
  command->add_option("--method", arguments->method, about)->type_name("NAME")->check(CLI::IsMember(methods));
  add_tier_option(*command, arguments->tier);
  command->add_flag(
      "--explain", arguments->explain,
      "Draw each plan shown, and say what bounds it, how slow links may be, and what the next one does differently");
  command->add_option("--html", arguments->html, "Write a page with the table and a drawing of each plan to this file")
      ->type_name("FILE");
  command->add_option("--json", arguments->json, "Write the answer as JSON to this file, - for standard output")
      ->type_name("FILE");
  command->add_option("--csv", arguments->csv, "Write the plans as CSV to this file, - for standard output")
      ->type_name("FILE");
  command->add_option("--save-plans", arguments->save_plans, "Write each plan to DIR/NN.yaml, which --plan-file reads")
      ->type_name("DIR");
  command->footer(
      "Ctrl-C ends the search, or the runs with noise, and answers with what there is so far.\n"
      "A scenario with `mode: training` is ranked by its training step (docs/training.md).");
  command->callback([command, arguments, &code] {
    arguments->has_seed = command->count("--seed") > 0;
    if (const Status status = rank(*arguments); !status.ok())
      code = report(status.error());
    else if (interrupted())
      code = exit_interrupted;
  });
}

}  // namespace nlsplit::inline tools
