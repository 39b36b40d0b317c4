// `nlbench network`: what messages take between the hosts of a scenario.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/units.h"
#include "cost/network_profile.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_games.h"
#include "tools/nlbench_launch.h"
#include "tools/nlbench_machine.h"
#include "tools/terminal.h"
#include "validate/ways.h"

namespace nlsplit {
namespace {

struct NetworkArguments {
  std::string scenario, output, nlsim, eager_limit = "65480B";
  LaunchArguments launch;
};

std::string table_of(const NetworkProfile& profile) {
  Table table({{"between", Align::left},
               {"latency", Align::right},
               {"bandwidth", Align::right},
               {"latency\nlarger ones", Align::right},
               {"bandwidth\nlarger ones", Align::right},
               {"while others\ncome back", Align::right},
               {"answers wait\nat most", Align::right},
               {"error of\nthe lines", Align::right},
               {"from computing,\nof the sender", Align::right},
               {"of the\nreceiver", Align::right},
               {"slower while\nboth compute", Align::right}});
  for (const NamedWay& way : profile.ways) {
    table.add({fmt::format("{} > {}", way.from, way.to), to_string(way.eager.latency), to_string(way.eager.bandwidth),
               to_string(way.rendezvous.latency), to_string(way.rendezvous.bandwidth),
               way.crossing.value() > 0 ? to_string(way.crossing) : "-", to_string(way.answer_wait),
               fmt::format("{:.1f} %", way.largest_error * 100), fmt::format("{:.2f} ns/B", way.overheads.sender * 1e9),
               fmt::format("{:.2f} ns/B", way.overheads.receiver * 1e9),
               fmt::format("{:.1f} %", way.overheads.slowed * 100)});
  }
  return table.to_string();
}

Status measure_network(const NetworkArguments& arguments) {
  ASSIGN_OR_RETURN(const Bytes eager_limit, parse_size(arguments.eager_limit));
  RETURN_IF_ERROR(check(arguments.launch));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string dir = folder.path() + "/set";
  ASSIGN_OR_RETURN(const GameSet set, make_games(arguments.nlsim, arguments.scenario, dir, eager_limit));
  NetworkProfile profile;
  profile.machine = describe_machine();
  profile.eager_limit = set.eager_limit;
  for (const Game& game : set.games) {
    show_progress("measuring messages", profile.ways.size(), set.games.size());
    auto fit = play(arguments.launch, dir, game, set.eager_limit);
    if (interrupted()) return ok_status();
    if (!fit) return fit.error();
    profile.ways.push_back({game.a, game.b, fit->eager, fit->rendezvous, {}, fit->largest_error, {}, {}});
    if (game.a != game.b)
      profile.ways.push_back({game.b, game.a, fit->eager, fit->rendezvous, {}, fit->largest_error, {}, {}});
  }
  for (size_t i = 0; i < set.crossings.size(); ++i) {
    show_progress("measuring messages both ways at once", i, set.crossings.size());
    const MessageGame& game = set.crossings[i];
    constexpr int repeats = 5;
    auto played = run_saved(arguments.launch, dir + "/" + game.folder, {game.a, game.b}, repeats);
    if (interrupted()) return ok_status();
    if (!played) return played.error();
    for (NamedWay& way : profile.ways) {
      if ((way.from != game.a || way.to != game.b) && (way.from != game.b || way.to != game.a)) continue;
      const double moving = played->makespan_s - way.rendezvous.latency.value();
      // Never more than alone: what is above that is noise.
      way.crossing = std::min(way.rendezvous.bandwidth,
                              bytes_per_second(static_cast<double>(game.bytes) / std::max(moving, 1e-9)));
    }
  }
  for (size_t i = 0; i < set.answers.size(); ++i) {
    show_progress("measuring how long answers wait", i, set.answers.size());
    const auto waits = measure_answer_wait(arguments.launch, dir, set.answers[i]);
    if (interrupted()) return ok_status();
    if (!waits) return waits.error();
    for (NamedWay& way : profile.ways) {
      if (way.from == set.answers[i].a && way.to == set.answers[i].b) way.answer_wait = *waits;
    }
  }
  for (size_t i = 0; i < set.pairs.size(); ++i) {
    show_progress("measuring what messages take from computing", i, set.pairs.size());
    auto overheads = measure_overheads(arguments.launch, dir, set.pairs[i]);
    if (interrupted()) return ok_status();
    if (!overheads) return overheads.error();
    for (NamedWay& way : profile.ways) {
      if (way.from == set.pairs[i].a && way.to == set.pairs[i].b) way.overheads = *overheads;
    }
  }
  for (size_t i = 0; i < set.slowed.size(); ++i) {
    show_progress("measuring messages while both ends compute", i, set.slowed.size());
    for (NamedWay& way : profile.ways) {
      if (way.from != set.slowed[i].a || way.to != set.slowed[i].b) continue;
      auto slowed = measure_slowed(arguments.launch, dir, set.slowed[i], way.rendezvous);
      if (interrupted()) return ok_status();
      if (!slowed) return slowed.error();
      way.overheads.slowed = *slowed;
    }
  }
  clear_progress();
  RETURN_IF_ERROR(write_network_profile(arguments.output, profile));
  fmt::print("{}\n{}: messages up to {} start at once, larger ones when the receiver is ready\n", table_of(profile),
             arguments.output, to_string(profile.eager_limit));
  return ok_status();
}

}  // namespace

void add_network_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "network",
      "Measure what messages take between the hosts of a scenario: latency and bandwidth of small and large ones.\n"
      "  nlbench network scenarios/mine.yaml -o profiles/network.json --mpirun 'mpirun --hostfile hosts' --on-hosts\n"
      "and then, in the scenario:  network: {profile: profiles/network.json}\n"
      "Not itself under mpirun: it starts one for each two hosts, with ranks that wait as they do in a real run.");
  const auto a = std::make_shared<NetworkArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario")->required();
  command->add_option("-o,--output", a->output, "The measurements to write (.json)")->required();
  command->add_option(
      "--eager-limit", a->eager_limit,
      "Messages up to this size start without waiting for their receiver (default 65480B: Open MPI over "
      "TCP)");
  add_launch_options(*command, a->launch);
  command->add_option("--nlsim", a->nlsim, "Where nlsim is (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts();
    code = end_command(measure_network(*a));
  });
}

}  // namespace nlsplit
