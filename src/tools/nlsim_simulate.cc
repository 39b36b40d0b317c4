#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "report/chrome_trace.h"
#include "report/table.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/planning.h"

namespace nlsplit {
namespace {

struct SimulateArguments {
  std::string scenario, trace, json;
  PlanChoice choice;
};

void print_timing(const RankedPlan& chosen, const TimedPlan& timed) {
  const Estimate& e = timed.estimate;
  fmt::print("{} · {}, {}\n\n", chosen.text, counted(chosen.plan.micro_batches, "micro-batch"), chosen.plan.schedule);
  fmt::print("batch of {}: {}, {} samples/s; latency of a micro-batch {} (longest {})\n\n", timed.program.batch,
             to_string(seconds(e.makespan_s)), rate_text(e.throughput), to_string(seconds(e.latency_mean_s)),
             to_string(seconds(e.latency_max_s)));
  using enum Align;
  Table table({{"device", left},
               {"host", left},
               {"computing", right},
               {"waiting", right},
               {"communicating", right},
               {"memory", right}});
  const std::vector<DeviceTimes> times = device_times(timed.program, timed.trace);
  for (size_t d = 0; d < times.size(); ++d) {
    const DeviceProgram& device = timed.program.devices[d];
    table.add(
        {device.name, device.host,
         fmt::format("{} ({:.0f} %)", to_string(seconds(times[d].compute)), times[d].compute / e.makespan_s * 100),
         to_string(seconds(times[d].wait)), to_string(seconds(times[d].communicate)), to_string(device.arena)});
  }
  fmt::print("{}\ncomputing and waiting make up the whole; messages travel beside both\n", table.to_string());
}

std::string timing_json(const RankedPlan& chosen, const TimedPlan& timed) {
  nlohmann::json devices = nlohmann::json::array();
  const std::vector<DeviceTimes> times = device_times(timed.program, timed.trace);
  for (size_t d = 0; d < times.size(); ++d) {
    devices.push_back({{"name", timed.program.devices[d].name},
                       {"compute_s", times[d].compute},
                       {"wait_s", times[d].wait},
                       {"communicate_s", times[d].communicate},
                       {"memory_bytes", timed.program.devices[d].arena.value()}});
  }
  const nlohmann::json file = {{"format", "nlsplit-simulation"},
                               {"version", 1},
                               {"plan", chosen.text},
                               {"fingerprint", hex16(timed.trace.fingerprint)},
                               {"batch", timed.program.batch},
                               {"makespan_s", timed.estimate.makespan_s},
                               {"throughput_per_s", timed.estimate.throughput},
                               {"latency_mean_s", timed.estimate.latency_mean_s},
                               {"latency_max_s", timed.estimate.latency_max_s},
                               {"devices", std::move(devices)}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status simulate(const SimulateArguments& arguments) {
  if (!is_scenario(arguments.scenario))
    return invalid_input(fmt::format("{}: simulate needs a scenario (*.yaml)", arguments.scenario));
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.scenario, 1));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan(loaded, arguments.choice));
  ASSIGN_OR_RETURN(const TimedPlan timed, time_plan(loaded.scenario, loaded.model.graph, chosen.plan));
  if (!arguments.trace.empty()) RETURN_IF_ERROR(write_file(arguments.trace, chrome_trace(timed.program, timed.trace)));
  if (arguments.json == "-") {
    fmt::print("{}", timing_json(chosen, timed));
    return ok_status();
  }
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, timing_json(chosen, timed)));
  print_timing(chosen, timed);
  return ok_status();
}

}  // namespace

void add_simulate_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("simulate", "Time one plan in SimGrid, device by device, and draw it");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("SCENARIO", arguments->scenario, "A scenario")->type_name("FILE")->required();
  CLI::Option* plan = command
                          ->add_option("--plan", arguments->choice.plan,
                                       "Number in the ranking, or name of one of the scenario's plans (default 1)")
                          ->type_name("K|NAME");
  command->add_option("--plan-file", arguments->choice.file, "A plan in a file of its own")
      ->type_name("FILE")
      ->excludes(plan);
  command
      ->add_option("--trace", arguments->trace, "Write a Chrome trace, for https://ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command->add_option("--json", arguments->json, "Write the figures as JSON to this file, - for standard output")
      ->type_name("FILE");
  command->callback([arguments, &code] {
    if (const Status status = simulate(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit
