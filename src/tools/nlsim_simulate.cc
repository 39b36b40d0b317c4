#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/temporary_folder.h"
#include "planning/gpu_kernels.h"
#include "planning/load.h"
#include "ranking/session.h"
#include "ranking/traffic.h"
#include "report/chrome_trace.h"
#include "report/goal.h"
#include "report/ranking/breakdown_report.h"
#include "report/table.h"
#include "schedule/pipeline_csv.h"
#include "sim/smpi/replay_files.h"
#include "sim/smpi/smpirun.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/nlsim_opinions.h"
#include "tools/outputs.h"
#include "tools/rank_options.h"

namespace nlsplit::inline tools {
namespace {

struct SimulateArguments {
  std::string scenario, trace, json, goal, smpi, decisions;
  PlanChoice choice;
  int noise_run = 0;  // from 1; 0: without noise
  bool links = false, opinions = false;
};

// What an execution is, and how long it takes.
std::string execution_text(const Scenario& scenario, const TimedPlan& timed) {
  const Estimate& e = timed.estimate;
  if (scenario.generation)
    return fmt::format("one decode ({}, a token of each, context {}): {}\n", counted(timed.program.batch, "sequence"),
                       scenario.generation->context, to_string(seconds(e.makespan_s)));
  return fmt::format("batch of {}: {}, {} samples/s; latency of a micro-batch {} (longest {})\n", timed.program.batch,
                     to_string(seconds(e.makespan_s)), rate_text(e.throughput), to_string(seconds(e.latency_mean_s)),
                     to_string(seconds(e.latency_max_s)));
}

// Of generation: what the figures and the files that are written leave out.
std::string_view decode_note(const Plan& plan) {
  return plan.prefill.empty()
             ? "all of this is decode; `nlsim rank` has the time of prompts (TTFT), --links their messages"
             : "all of this is decode; prompts are computed by `prefill`, and nothing of that is here: `nlsim rank` "
               "has its time (TTFT), --links its messages";
}

void print_timing(const Scenario& scenario, const RankedPlan& chosen, const TimedPlan& timed) {
  fmt::print("{} · {}, {}\n\n", chosen.text, counted(chosen.plan.micro_batches, "micro-batch"), chosen.plan.schedule);
  fmt::print("{}\n{}", execution_text(scenario, timed), breakdown_text(timed));
  if (!timed.notes.empty() || scenario.generation) fmt::print("\n");
  if (scenario.generation) fmt::print("note     {}\n", decode_note(chosen.plan));
  for (const PlanNote& note : timed.notes) fmt::print("note     {}\n", note.text);
}

std::string traffic_text(const Traffic& traffic) {
  if (traffic.links.empty()) return "\nno message of a token or a prompt crosses a link\n";
  using enum Align;
  const auto count = [](const Carried& carried) { return fmt::format("{:.6g}", carried.messages); };
  const auto size = [](const Carried& carried) { return grouped(carried.bytes); };
  Table table({{"link", left},
               {"bytes of\na token", right},
               {"messages", right},
               {"bytes of\na prompt", right},
               {"messages", right}});
  for (const LinkTraffic& link : traffic.links)
    table.add({link.name, size(link.token), count(link.token), size(link.prompt), count(link.prompt)});
  return fmt::format(
      "\n{}\na token of each sequence; a prompt in {}; choices of what runs next included, headers of a transport "
      "not\n",
      table.to_string(), counted(traffic.chunks, "execution"));
}

nlohmann::json traffic_json(const Traffic& traffic) {
  const auto one = [](const Carried& carried) {
    return nlohmann::json{{"bytes", carried.bytes}, {"messages", carried.messages}};
  };
  nlohmann::json links = nlohmann::json::array();
  for (const LinkTraffic& link : traffic.links)
    links.push_back({{"name", link.name}, {"token", one(link.token)}, {"prompt", one(link.prompt)}});
  return {{"prompt_executions", traffic.chunks}, {"links", std::move(links)}};
}

std::string timing_json(const RankedPlan& chosen, const TimedPlan& timed, bool generates,
                        const std::optional<Traffic>& traffic, const std::optional<Opinions>& opinions) {
  nlohmann::json devices = nlohmann::json::array();
  const std::vector<DeviceTimes> times = device_times(timed.program, timed.trace);
  auto estimated = timed.estimate.devices.begin();
  for (size_t d = 0; d < times.size(); ++d) {
    devices.push_back({{"name", timed.program.devices[d].name},
                       {"compute_s", timed.breakdown.devices[d].computing},
                       {"exposed_communication_s", timed.breakdown.devices[d].exposed_communication},
                       {"waiting_s", timed.breakdown.devices[d].waiting},
                       {"communicate_s", times[d].communicate},
                       {"memory_bytes", timed.program.devices[d].arena.value()}});
    if (timed.program.devices[d].kind == DeviceKind::host) continue;
    if (is_training(timed.program)) devices.back()["phases_s"] = phases_json(estimated->phases);
    ++estimated;
  }
  nlohmann::json file = {{"format", "nlsplit-simulation"},
                         {"version", 1},
                         {"plan", chosen.text},
                         {"fingerprint", hex16(timed.trace.fingerprint)},
                         {"batch", timed.program.batch},
                         {"makespan_s", timed.estimate.makespan_s},
                         {"throughput_per_s", timed.estimate.throughput},
                         {"latency_mean_s", timed.estimate.latency_mean_s},
                         {"latency_max_s", timed.estimate.latency_max_s},
                         {"devices", std::move(devices)},
                         {"links", links_json(timed.estimate.links)}};
  if (generates) file["execution"] = "decode";
  if (traffic) file["generation"] = traffic_json(*traffic);
  if (opinions) file["opinions"] = opinions_json(*opinions);
  for (const PlanNote& note : timed.notes) file["notes"].push_back(note.text);
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status write_goal(const std::string& path, const TimedPlan& timed) {
  if (timed.graph.online)
    return unsupported(
        "GOAL has an order for every rank: export a plan that is not online, or follow its decisions as a file");
  ASSIGN_OR_RETURN(const Dependencies deps, dependencies(timed.program));
  return write_file(path, goal_text(timed.program, deps, timed.graph));
}

// The folder for SMPI, if one is wanted, and what it and the others say, if they are asked.
Result<std::optional<Opinions>> opinions_of(const SimulateArguments& arguments, const Scenario& scenario,
                                            const TimedPlan& timed) {
  if (arguments.smpi.empty() && !arguments.opinions) return std::optional<Opinions>();
  ASSIGN_OR_RETURN(const ReplayFiles files, replay_files(timed.program, timed.graph, scenario.cluster));
  if (!arguments.smpi.empty()) RETURN_IF_ERROR(save(files, arguments.smpi));
  if (!arguments.opinions) return std::optional<Opinions>();
  ASSIGN_OR_RETURN(const TemporaryFolder scratch, TemporaryFolder::create());
  const std::string folder = scratch.path() + "/replay";
  RETURN_IF_ERROR(save(files, folder));
  ASSIGN_OR_RETURN(Opinions opinions, ask_opinions(scenario, timed, folder));
  return std::optional(std::move(opinions));
}

Status simulate(const SimulateArguments& arguments) {
  if (!is_scenario(arguments.scenario))
    return invalid_input(fmt::format("{}: simulate needs a scenario (*.yaml)", arguments.scenario));
  RETURN_IF_ERROR(check_outputs({arguments.trace, arguments.json, arguments.goal, arguments.decisions}));
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.scenario, 1));
  if (arguments.opinions) RETURN_IF_ERROR(check_smpirun());
  if (arguments.links && !loaded.scenario.generation)
    return invalid_input(
        fmt::format("{}: --links is about tokens and prompts, and this workload generates none", arguments.scenario));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  std::optional<Traffic> traffic;
  if (arguments.links) {
    ASSIGN_OR_RETURN(const CompiledSession compiled, session_of(loaded.scenario, loaded.model, chosen.plan));
    ASSIGN_OR_RETURN(traffic, generation_traffic(loaded.scenario, compiled.session));
  }
  const std::optional<int> run = arguments.noise_run > 0 ? std::optional(arguments.noise_run - 1) : std::nullopt;
  ASSIGN_OR_RETURN(const TimedPlan timed,
                   time_plan(loaded.scenario, loaded.model.graph, chosen.plan, run, nullptr, *arguments.choice.tier));
  if (!arguments.trace.empty()) RETURN_IF_ERROR(write_file(arguments.trace, chrome_trace(timed.program, timed.trace)));
  if (!arguments.decisions.empty())
    RETURN_IF_ERROR(write_file(arguments.decisions, to_text(csv_of(table_of_slots(timed.program, timed.decided)))));
  if (!arguments.goal.empty()) RETURN_IF_ERROR(write_goal(arguments.goal, timed));
  ASSIGN_OR_RETURN(const std::optional<Opinions> opinions, opinions_of(arguments, loaded.scenario, timed));
  if (!arguments.json.empty()) {
    const std::string text = timing_json(chosen, timed, loaded.scenario.generation.has_value(), traffic, opinions);
    if (arguments.json == "-") {
      fmt::print("{}", text);
      return ok_status();
    }
    RETURN_IF_ERROR(write_file(arguments.json, text));
  }
  fmt::print("{}", gpu_kernels_note(loaded.scenario, timed.program));
  print_timing(loaded.scenario, chosen, timed);
  if (traffic) fmt::print("{}", traffic_text(*traffic));
  if (opinions) fmt::print("{}", opinions_text(*opinions));
  return ok_status();
}

}  // namespace

void add_simulate_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("simulate", "Time one plan by simulation, device by device, and draw it");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("SCENARIO", arguments->scenario, "A scenario")->type_name("FILE")->required();
  CLI::Option* plan = command
                          ->add_option("--plan", arguments->choice.plan,
                                       "Number in the ranking, or name of one of the scenario's plans (default 1)")
                          ->type_name("K|NAME");
  command->add_option("--plan-file", arguments->choice.file, "A plan in a file of its own")
      ->type_name("FILE")
      ->excludes(plan);
  add_tier_option(*command, arguments->choice.tier);
  CLI::Option* noise = command
                           ->add_option("--noise-run", arguments->noise_run,
                                        "Simulate this run of the scenario's `noise`, from 1 (default: no noise)")
                           ->type_name("K")
                           ->check(at_least(1));
  command
      ->add_option("--trace", arguments->trace, "Write a Chrome trace, for https://ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command
      ->add_option("--goal", arguments->goal,
                   "Write the plan with its durations as GOAL text, which LogGOPSim simulates (docs/training.md)")
      ->type_name("FILE");
  command
      ->add_option("--smpi", arguments->smpi,
                   "Write the plan with its durations as time-independent traces, with a platform and a script that "
                   "replays them:\n"
                   "a folder for SimGrid's SMPI (docs/opinions.md)")
      ->type_name("FOLDER")
      ->excludes(noise);
  command
      ->add_flag("--opinions", arguments->opinions,
                 "Compare all simulators, and SMPI's replay (smpirun, in Debian's package libsimgrid-dev); their "
                 "difference is\nan uncertainty (docs/opinions.md)")
      ->excludes(noise);
  command
      ->add_option("--decisions", arguments->decisions,
                   "Write the order of each device's slots, as PyTorch's pipeline CSV: an online plan can `replay` "
                   "it\n(docs/schedules.md)")
      ->type_name("FILE");
  command->add_flag(
      "--links", arguments->links,
      "For generation: bytes and messages of a token and of a prompt on each link and direction (docs/generation.md)");
  command->add_option("--json", arguments->json, "Write the figures as JSON to this file, - for standard output")
      ->type_name("FILE");
  command->callback([arguments, &code] {
    if (const Status status = simulate(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
