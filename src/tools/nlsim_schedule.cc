#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/limits.h"
#include "compile/compile.h"
#include "planning/load.h"
#include "report/schedule_report.h"
#include "report/schedule_svg.h"
#include "report/table.h"
#include "scenario/parse.h"
#include "schedule/online_choice.h"
#include "schedule/pipeline_csv.h"
#include "schedule/placement.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/rank_options.h"

namespace nlsplit::inline tools {
namespace {

struct ScheduleArguments {
  std::string what, times, placement, output, json, svg;  // what: a name, FILE.csv or a scenario
  int devices = 0, stages = 0, micro_batches = 0;         // 0: not said
  int keep = 0, in_flight = 0, width = 160;
  double message = 0;
  bool list = false;
  PlanChoice choice;
  std::string schedule;  // of a scenario's plan: instead of its own
};

bool is_csv(const std::string& what) { return what.ends_with(".csv"); }

struct Times {
  double forward = 1;
  std::optional<double> input_gradient, weight_gradient;
};

Result<Times> parse_times(const std::string& text, bool training) {
  if (text.empty()) return training ? Times{1, 1, 1} : Times{};
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    double value = 0;
    const auto [stop, failure] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (failure != std::errc() || stop != text.data() + end || !(value >= 0) || !std::isfinite(value)) {
      return invalid_input(
          fmt::format("--times {}: '{}' is not a time; give F, or F,I,W", text, text.substr(begin, end - begin)));
    }
    numbers.push_back(value);
    begin = end + 1;
  }
  if (training && numbers.size() != 3)
    return invalid_input(fmt::format("--times {}: training takes three, F,I,W, e.g. --times 1,1,1", text));
  if (!training && numbers.size() != 1)
    return invalid_input(fmt::format("--times {}: inference takes one, of F, e.g. --times 1", text));
  if (!training) return Times{numbers[0], std::nullopt, std::nullopt};
  return Times{numbers[0], numbers[1], numbers[2]};
}

Result<StagePlacement> parse_placement(const std::string& text) {
  for (const StagePlacement placement :
       {StagePlacement::chain, StagePlacement::loop, StagePlacement::v, StagePlacement::mirrored}) {
    if (name_of(placement) == text) return placement;
  }
  return invalid_input(fmt::format("no placement '{}'; there are chain, loop, v and mirrored", text));
}

void set_times(ScheduleInput& input, const Times& times, const ScheduleArguments& arguments) {
  for (const std::vector<int>& on : input.stage_devices) {
    input.stage_seconds.emplace_back(on.size(), times.forward);
    if (times.input_gradient) input.input_gradient_seconds.emplace_back(on.size(), *times.input_gradient);
    if (times.weight_gradient) input.weight_gradient_seconds.emplace_back(on.size(), *times.weight_gradient);
    input.message_seconds.push_back(arguments.message);
    if (arguments.keep == 0) continue;
    input.kept_until_input_gradient.push_back(bytes(1));  // counted, not weighed
    input.kept_until_weight_gradient.push_back(bytes(1));
  }
  if (arguments.keep > 0) input.device_memory.assign(static_cast<size_t>(input.devices), bytes(arguments.keep));
  input.in_flight = arguments.in_flight;
}

struct Made {
  ScheduleInput input;
  SlotTable table;
  PipelineCsv csv;
  std::string name;
};

Result<Made> from_file(const ScheduleArguments& arguments) {
  if (arguments.devices > 0 || arguments.stages > 0 || arguments.micro_batches > 0 || !arguments.placement.empty()) {
    return invalid_input(
        fmt::format("{}: the file says devices, stages, micro-batches and placement itself: leave those options away",
                    arguments.what));
  }
  Made made;
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.what));
  ASSIGN_OR_RETURN(made.csv, parse_pipeline_csv(text, arguments.what));
  ASSIGN_OR_RETURN(const PipelineShape shape, shape_of(made.csv));
  ASSIGN_OR_RETURN(const Times times, parse_times(arguments.times, shape.training));
  made.input.micro_batches = shape.micro_batches;
  made.input.devices = static_cast<int>(made.csv.ranks.size());
  made.input.stage_devices = shape.stage_devices;
  set_times(made.input, times, arguments);
  ASSIGN_OR_RETURN(made.table, table_of(made.csv, made.input));
  return made;
}

// As many micro-batches as a scenario may have, as many devices as a Program.
Status check_size(int64_t devices, int64_t stages, int64_t micro_batches) {
  if (micro_batches > max_micro_batches)
    return invalid_input(fmt::format("--micro-batches {}: at most {}", micro_batches, max_micro_batches));
  if (devices > most_devices) return invalid_input(fmt::format("--devices {}: at most {}", devices, most_devices));
  if (stages * micro_batches > most_steps) {
    return invalid_input(fmt::format("{} stages of {} micro-batches: a schedule has at most {} slots", stages,
                                     micro_batches, most_steps));
  }
  return ok_status();
}

Result<Made> from_policy(const ScheduleArguments& arguments) {
  ASSIGN_OR_RETURN(const SchedulePolicy* policy, find_schedule(arguments.what));
  // Policies for both are for whatever the times are; training unless one time is given.
  const bool one_time = !arguments.times.empty() && arguments.times.find(',') == std::string::npos;
  const bool training = policy->mode == ScheduleMode::training || (policy->mode == ScheduleMode::both && !one_time);
  ASSIGN_OR_RETURN(const Times times, parse_times(arguments.times, training));
  StagePlacement placement = policy->placement == StagePlacement::any ? StagePlacement::chain : policy->placement;
  if (!arguments.placement.empty()) {
    ASSIGN_OR_RETURN(placement, parse_placement(arguments.placement));
  }
  Made made;
  const bool two_each = placement == StagePlacement::loop || placement == StagePlacement::v;
  const int devices = arguments.devices > 0 ? arguments.devices : 4;
  const int stages = arguments.stages > 0 ? arguments.stages : two_each ? 2 * devices : devices;
  made.input.devices = devices;
  made.input.micro_batches = arguments.micro_batches > 0 ? arguments.micro_batches : 2 * devices;
  RETURN_IF_ERROR(check_size(devices, stages, made.input.micro_batches));
  ASSIGN_OR_RETURN(made.input.stage_devices, make_placement(placement, devices, stages));
  set_times(made.input, times, arguments);
  ASSIGN_OR_RETURN(made.table, make_schedule(arguments.what, made.input));
  made.csv = csv_of(made.table);
  return made;
}

// A scenario's plan, with what its stages take on its devices and keep of them; messages are for `nlsim simulate`.
Result<Made> from_scenario(const ScheduleArguments& arguments) {
  if (arguments.devices > 0 || arguments.stages > 0 || arguments.micro_batches > 0 || !arguments.placement.empty() ||
      !arguments.times.empty() || arguments.keep > 0) {
    return invalid_input(fmt::format(
        "{}: the scenario and its plan say devices, stages, micro-batches, times and memory: leave those options away",
        arguments.what));
  }
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, 1));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  const Scenario& scenario = loaded.scenario;
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   prepare_model(scenario, loaded.model.graph, chosen.plan.micro_batches));
  const CostTable costs = cost_table(scenario, loaded.model.graph.name);
  Made made;
  ASSIGN_OR_RETURN(made.input, schedule_input(prepared.kernels, chosen.plan, scenario.cluster, &costs));
  made.input.message_seconds.assign(made.input.stage_devices.size(), arguments.message);
  made.input.in_flight = arguments.in_flight;
  std::string schedule = arguments.schedule.empty() ? chosen.plan.schedule : arguments.schedule;
  if (is_csv(schedule) && !schedule.starts_with(schedule_file_prefix) && !is_online(schedule))
    schedule = std::string(schedule_file_prefix) + schedule;
  ASSIGN_OR_RETURN(made.table, make_schedule(schedule, made.input));
  made.csv = csv_of(made.table);
  made.name = fmt::format("{} · {}, seconds", chosen.text, schedule);
  return made;
}

Status schedule_command(const ScheduleArguments& arguments) {
  if (arguments.list) {
    std::fputs(schedules_text().c_str(), stdout);
    return ok_status();
  }
  if (arguments.what.empty())
    return invalid_input("nlsim schedule needs the name of a schedule or a FILE.csv; --list shows the names");
  if (!(arguments.message >= 0) || !std::isfinite(arguments.message))
    return invalid_input("--message takes a time from 0 on");
  const bool scenario = is_scenario(arguments.what);
  if (!scenario && (!arguments.choice.plan.empty() || !arguments.choice.file.empty() || !arguments.schedule.empty()))
    return invalid_input("--plan, --plan-file and --schedule need a scenario (*.yaml)");
  auto made = scenario                 ? from_scenario(arguments)
              : is_csv(arguments.what) ? from_file(arguments)
                                       : from_policy(arguments);
  if (!made.ok()) return made.error();
  if (made->name.empty()) made->name = arguments.what;
  ASSIGN_OR_RETURN(const SlotTiming timing, evaluate(made->input, made->table));
  if (!arguments.output.empty()) RETURN_IF_ERROR(write_file(arguments.output, to_text(made->csv)));
  if (!arguments.svg.empty())
    RETURN_IF_ERROR(write_file(arguments.svg, schedule_svg(made->name, made->input, made->table, timing)));
  const std::string json = schedule_json(made->name, made->input, made->table, timing);
  if (arguments.json == "-") {
    std::fputs(json.c_str(), stdout);
    return ok_status();
  }
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, json));
  fmt::print("{} · {}, {}, {}\n\n", made->name, counted(made->input.devices, "device"),
             counted(static_cast<int64_t>(made->input.stage_devices.size()), "stage"),
             counted(made->input.micro_batches, "micro-batch"));
  std::fputs(schedule_text(made->input, made->table, timing, arguments.width).c_str(), stdout);
  return ok_status();
}

}  // namespace

void add_schedule_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("schedule",
                         "Draw a schedule with its bubble and memory, or check one of your own (docs/schedules.md)\n"
                         "  nlsim schedule 1f1b --devices 4 --micro-batches 8\n"
                         "  nlsim schedule mine.csv --times 10,12,8 --message 1");
  const auto arguments = std::make_shared<ScheduleArguments>();
  command->add_option("SCHEDULE", arguments->what, "A schedule's name, a FILE.csv as PyTorch writes it, or a scenario")
      ->type_name("NAME|FILE.csv|SCENARIO");
  CLI::Option* plan = command
                          ->add_option("--plan", arguments->choice.plan,
                                       "For a scenario: number in the ranking, or name of one of its plans (default 1)")
                          ->type_name("K|NAME");
  command->add_option("--plan-file", arguments->choice.file, "For a scenario: a plan in a file of its own")
      ->type_name("FILE")
      ->excludes(plan);
  command->add_option("--schedule", arguments->schedule, "For a scenario: this schedule instead of the plan's")
      ->type_name("NAME|FILE.csv");
  command->add_flag("--list", arguments->list, "List the schedules: mode, placement of stages, source");
  command->add_option("--devices", arguments->devices, "Devices of the pipeline (default 4)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command->add_option("--stages", arguments->stages, "Stages (default: one a device, two in placements loop and v)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command->add_option("--micro-batches", arguments->micro_batches, "Micro-batches (default: two a device)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command
      ->add_option(
          "--times", arguments->times,
          "Times of one micro-batch in one stage: forward, input gradient, weight gradient (default 1,1,1); one "
          "number: inference")
      ->type_name("F,I,W");
  command->add_option("--message", arguments->message, "Time of a message between two devices (default 0)")
      ->type_name("TIME");
  command
      ->add_option("--placement", arguments->placement,
                   "Placement of stages, for schedules that serve any placement (default chain)")
      ->type_name("chain|loop|v|mirrored");
  command
      ->add_option("--keep", arguments->keep,
                   "Micro-batches of one stage that a device has memory for, from F until W (default: no limit)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command->add_option("--in-flight", arguments->in_flight, "For streaming: micro-batches to a buffer (default 2)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command->add_option("--width", arguments->width, "Columns of the drawing (default 160)")
      ->type_name("COLUMNS")
      ->check(at_least(10));
  command->add_option("-o,--output", arguments->output, "Write the schedule as PyTorch's pipeline CSV")
      ->type_name("FILE");
  command->add_option("--json", arguments->json, "Write slots and figures as JSON to this file, - for standard output")
      ->type_name("FILE");
  command->add_option("--svg", arguments->svg, "Write the drawing as an SVG picture")->type_name("FILE");
  command->footer(
      "Times are in any unit, as the papers have them. docs/schedules.md explains schedules, the CSV and its errors.");
  command->callback([arguments, &code] {
    if (const Status status = schedule_command(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
