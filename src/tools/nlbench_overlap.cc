// `nlbench overlap`: do messages really travel while devices compute?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/temporary_folder.h"
#include "base/units.h"
#include "graph/weights.h"
#include "measure/network.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_machine.h"
#include "tools/option_values.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

struct OverlapArguments {
  std::string scenario, json, nlsim, eager_limit = "65480B", clock;
  std::vector<std::string> messages;
  int micro_batches = 64;
  LaunchArguments launch;
};

constexpr std::array<double, 5> ratios = {0.25, 0.5, 1, 2, 4};  // of a message's time to a computation's
constexpr int repeats = 5;
// Messages were timed up to 4 MiB; much longer ones, as ratios would ask for within one machine, take other times.
constexpr int64_t longest_message = 16 << 20;

// What a micro-batch costs at each stage of the pipeline sender > link > receiver.
struct Stages {
  double sender_s = 0, receiver_s = 0;  // computing, with what messages took from it
  double link_s = 0;                    // bytes / bandwidth
  double arrival_s = 0;                 // and all of a message's latency
};

// No schedule is faster: the busiest stage does all its work, and the first micro-batch passes the stages before it,
// the last one those after it.
double bound_of(const Stages& stages, int micro_batches) {
  const double busiest = std::max({stages.sender_s, stages.link_s, stages.receiver_s});
  return stages.sender_s + stages.arrival_s + stages.receiver_s + (micro_batches - 1) * busiest;
}

struct Row {
  double ratio = 0;
  int64_t bytes = 0;
  Stages stages = {};
  double bound_s = 0, measured_s = 0;
};

std::string table_of(const std::vector<Row>& rows) {
  Table table({{"transfer /\ncomputing", Align::right},
               {"message", Align::right},
               {"computing\nsender", Align::right},
               {"\nreceiver", Align::right},
               {"transfer", Align::right},
               {"all of it\nbound", Align::right},
               {"\nmeasured", Align::right},
               {"reached", Align::right}});
  for (const Row& row : rows) {
    table.add({fmt::format("{:.2f}", row.ratio), to_string(bytes(row.bytes)), to_string(seconds(row.stages.sender_s)),
               to_string(seconds(row.stages.receiver_s)), to_string(seconds(row.stages.link_s)),
               to_string(seconds(row.bound_s)), to_string(seconds(row.measured_s)),
               fmt::format("{:.1f} %", 100 * row.bound_s / row.measured_s)});
  }
  return table.to_string();
}

std::string json_of(const std::vector<Row>& rows, const BusyPair& pair, const OverlapArguments& arguments) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    list.push_back({{"ratio", row.ratio},
                    {"message_bytes", row.bytes},
                    {"sender_s", row.stages.sender_s},
                    {"receiver_s", row.stages.receiver_s},
                    {"link_s", row.stages.link_s},
                    {"bound_s", row.bound_s},
                    {"measured_s", row.measured_s},
                    {"reached", row.bound_s / row.measured_s}});
  }
  const nlohmann::ordered_json root = {{"format", "nlsplit-overlap"},
                                       {"version", 1},
                                       {"machine", describe_machine()},
                                       {"from", pair.a},
                                       {"to", pair.b},
                                       {"micro_batches", arguments.micro_batches},
                                       {"emulated_compute", !arguments.clock.empty()},
                                       {"rows", std::move(list)}};
  return root.dump(1) + "\n";
}

Result<std::vector<int64_t>> sizes_of(const std::vector<std::string>& texts) {
  std::vector<int64_t> sizes;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(const Bytes size, size_option("--message", text));
    if (size.value() < 4 || size.value() > longest_message || size.value() % 4 != 0) {
      return invalid_input(
          fmt::format("--message {}: whole floats, from 4B to {}", text, to_string(bytes(longest_message))));
    }
    sizes.push_back(size.value());
  }
  return sizes;
}

Status measure_overlap(const OverlapArguments& arguments) {
  ASSIGN_OR_RETURN(const Bytes eager_limit, size_option("--eager-limit", arguments.eager_limit));
  Seconds clock{};
  if (!arguments.clock.empty()) {
    ASSIGN_OR_RETURN(clock, time_option("--clock", arguments.clock));
    if (!(clock > seconds(0))) return invalid_input("--clock: a time above 0 is needed");
  }
  RETURN_IF_ERROR(check(arguments.launch));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string dir = folder.path() + "/set";
  ASSIGN_OR_RETURN(const NetworkTests set,
                   make_network_tests(arguments.nlsim, arguments.scenario, dir, eager_limit, "all"));
  if (set.pairs.empty()) {
    return invalid_input(
        fmt::format("{}: there are no two hosts with devices that exchange messages", arguments.scenario));
  }
  const BusyPair& pair = set.pairs[0];
  const auto test =
      std::ranges::find_if(set.tests, [&](const PingPongTest& g) { return g.a == pair.a && g.b == pair.b; });
  CHECK(test != set.tests.end(), "a busy pair without a ping-pong test");
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, sizes_of(arguments.messages));
  const size_t steps = (sizes.empty() ? ratios.size() : sizes.size()) + 2;
  show_progress("measuring", 0, steps);
  ASSIGN_OR_RETURN(const MeasuredMessages measured, play(arguments.launch, dir, *test, set.eager_limit));
  const RouteFit& way = measured.fit;
  show_progress("measuring", 1, steps);
  ASSIGN_OR_RETURN(const SavedProgram both, load_program(dir + "/" + pair.folder));
  const DeviceProgram& sender = both.program.devices[0];
  const DeviceProgram& receiver = both.program.devices[1];
  const auto saved = [&](const BusyPairOptions& options) -> SavedProgram {
    Program program = busy_pair(pair.a, pair.b, sender.level, receiver.level, options);
    Clocks clocks = arguments.clock.empty() ? Clocks() : busy_clock(program, clock.value());
    return {program, program, false, {}, std::move(clocks)};
  };
  BusyPairOptions options{65536, set.eager_limit, false, arguments.micro_batches};
  // Kernels compute what they compute, and a clock only adds to it: of many small ones the processor would have no time
  // left for messages, as that of the device that is meant has.
  if (!arguments.clock.empty()) options.computations = 8;
  RETURN_IF_ERROR(save_program(dir + "/alone", saved(options), WeightStore()));
  ASSIGN_OR_RETURN(const Played alone, run_saved(arguments.launch, dir + "/alone", {pair.a, pair.b}, repeats));
  const auto computing = [&](size_t device) { return alone.compute_s[device] / arguments.micro_batches; };
  std::vector<int64_t> wanted = sizes;
  for (const double ratio : ratios) {
    if (!sizes.empty()) break;
    const double size = ratio * std::max(computing(0), computing(1)) * way.rendezvous.bandwidth.value();
    if (size <= static_cast<double>(longest_message))
      wanted.push_back(std::max<int64_t>(64, std::llround(size / 64) * 64));
  }
  if (wanted.empty()) wanted.push_back(longest_message);
  std::vector<Row> rows;
  for (const int64_t message : wanted) {
    show_progress("measuring", 2 + rows.size(), steps);
    if (interrupted()) return ok_status();
    Row row{.bytes = message};
    const MessageCost& cost = bytes(row.bytes) <= set.eager_limit ? way.eager : way.rendezvous;
    const double link_s = (bytes(row.bytes) / cost.bandwidth).value();
    row.ratio = link_s / std::max(computing(0), computing(1));
    options.message_bytes = row.bytes;
    options.messages = true;
    const std::string probe = fmt::format("{}/r{}", dir, rows.size() + 1);
    RETURN_IF_ERROR(save_program(probe, saved(options), WeightStore()));
    ASSIGN_OR_RETURN(const Played played, run_saved(arguments.launch, probe, {pair.a, pair.b}, repeats));
    const double n = arguments.micro_batches;
    row.stages = {played.compute_s[0] / n, played.compute_s[1] / n, link_s, link_s + cost.latency.value()};
    row.bound_s = bound_of(row.stages, arguments.micro_batches);
    row.measured_s = played.makespan_s;
    rows.push_back(row);
  }
  clear_progress();
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, json_of(rows, pair, arguments)));
  fmt::print("{} > {}: {} micro-batches{}\n\n{}\n", pair.a, pair.b, arguments.micro_batches,
             arguments.clock.empty() ? "" : ", emulated compute", table_of(rows));
  fmt::print(
      "computing: of a micro-batch, with what messages took from it; bound: the busiest of sender, link and receiver\n"
      "is never idle; reached: bound / measured, median of {}\n",
      repeats);
  return ok_status();
}

}  // namespace

void add_overlap_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "overlap",
      "Do messages travel while devices compute? Two devices of a scenario in a pipeline, with messages that take a\n"
      "quarter to four times as long as the computing, measured against the bound no schedule can beat.\n"
      "  scripts/emulate_cluster scenarios/mine.yaml -- nlbench overlap scenarios/mine.yaml\n"
      "Do not start it with mpirun or srun: it starts its own.");
  const auto a = std::make_shared<OverlapArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario; its first two hosts with devices are measured")
      ->required();
  command->add_option("--micro-batches", a->micro_batches, "Micro-batches of each run (default 64)")
      ->check(at_least(2));
  command->add_option("--message", a->messages,
                      "Size of the messages, e.g. 1MiB; more than once for more rows (default: by the ratios)");
  command->add_option("--clock", a->clock,
                      "Emulated compute: time of a micro-batch, e.g. 10ms (default: real computing)");
  command->add_option("--eager-limit", a->eager_limit,
                      "Messages up to this size start without waiting for their receiver (default 65480B)");
  command->add_option("--json", a->json, "Write the figures as JSON to this file");
  add_launch_options(*command, a->launch);
  command->add_option("--nlsim", a->nlsim, "Path of nlsim (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts(mpirun_ends_within_s);
    code = end_command(measure_overlap(*a));
  });
}

}  // namespace nlsplit::inline tools
