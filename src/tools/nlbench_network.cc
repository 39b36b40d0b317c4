// `nlbench network`: what messages take between the hosts of a scenario.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/output_lock.h"
#include "base/temporary_folder.h"
#include "base/units.h"
#include "cost/network_profile.h"
#include "measure/launch.h"
#include "measure/network.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_machine.h"
#include "tools/option_values.h"
#include "tools/terminal.h"
#include "validate/alike_routes.h"
#include "validate/routes.h"

namespace nlsplit::inline tools {
namespace {

struct NetworkArguments {
  std::string scenario, output, nlsim, eager_limit, pairs = fmt::format("{}", usual_pairs);
  LaunchArguments launch;
};

std::string table_of(const NetworkProfile& profile) {
  Table table({{"between", Align::left},
               {"latency", Align::right},
               {"bandwidth", Align::right},
               {"latency\nlarger ones", Align::right},
               {"bandwidth\nlarger ones", Align::right},
               {"while others\ncome back", Align::right},
               {"start\nearly", Align::left},
               {"clear to send\nat most", Align::right},
               {"error of\nthe lines", Align::right},
               {"from computing,\nof the sender", Align::right},
               {"of the\nreceiver", Align::right},
               {"slower while\nboth compute", Align::right},
               {"handshake\nlonger", Align::right},
               {"held by\nthe sender", Align::right},
               {"into its\nsocket", Align::right}});
  const auto add = [&](const std::string& between, const NamedRoute& way) {
    table.add({between, to_string(way.eager.latency), to_string(way.eager.bandwidth), to_string(way.rendezvous.latency),
               to_string(way.rendezvous.bandwidth), way.crossing.value() > 0 ? to_string(way.crossing) : "-",
               way.starts_early ? "yes" : "no", to_string(way.clear_to_send_delay),
               fmt::format("{:.1f} %", way.largest_error * 100), fmt::format("{:.2f} ns/B", way.overheads.sender * 1e9),
               fmt::format("{:.2f} ns/B", way.overheads.receiver * 1e9),
               fmt::format("{:.1f} %", way.overheads.slowed * 100), to_string(seconds(way.overheads.busy)),
               to_string(seconds(way.overheads.held)), fmt::format("{:.2f} ns/B", way.overheads.handover * 1e9)});
  };
  std::map<std::vector<RouteEnds>, std::vector<const NamedRoute*>> others;  // by what they are the median of
  for (const NamedRoute& way : profile.routes) {
    if (way.median_of.empty())
      add(fmt::format("{} > {}", way.from, way.to), way);
    else
      others[way.median_of].push_back(&way);
  }
  for (const auto& [known, ways] : others) {
    std::set<std::pair<std::string, std::string>> pairs;  // both directions of some are here
    for (const NamedRoute* way : ways) pairs.insert(std::minmax(way->from, way->to));
    const std::string count = counted(std::ssize(pairs), "more pair");
    add(fmt::format("{} like {} > {}", count, known[0].from, known[0].to), *ways[0]);
  }
  return table.to_string();
}

// What is known of a scenario's ways so far, and how to learn more.
class Measurement {
 public:
  Measurement(const LaunchArguments& launch, const NetworkTests& set, const std::string& dir)
      : launch_(launch), set_(set), dir_(dir) {
    profile_.machine = describe_machine();
    profile_.eager_limit = set.eager_limit;
    profile_.transport = launch.transport->name;
  }

  // After an interrupt it ends early, and what it knows is of no use.
  Result<NetworkProfile> run() {
    RETURN_IF_ERROR(each(set_.tests, "measuring messages", &Measurement::alone));
    RETURN_IF_ERROR(each(set_.crossings, "measuring messages both ways at once", &Measurement::both_ways));
    RETURN_IF_ERROR(each(set_.clear_to_send, "measuring clear-to-send delays", &Measurement::clear_to_send));
    RETURN_IF_ERROR(each(set_.late, "measuring whether messages wait for receivers", &Measurement::late));
    RETURN_IF_ERROR(each(set_.pairs, "measuring what messages take from computing", &Measurement::overheads));
    RETURN_IF_ERROR(each(set_.busy, "measuring handshakes while both ends compute", &Measurement::busy));
    RETURN_IF_ERROR(each(set_.slowed, "measuring messages while both ends compute", &Measurement::slowed));
    clear_progress();
    if (!interrupted()) add_medians(set_.alike, profile_);
    return std::move(profile_);
  }

 private:
  template <class T>
  Status each(const std::vector<T>& tests, const std::string& doing, Status (Measurement::*measure)(const T&)) {
    for (size_t i = 0; i < tests.size() && !interrupted(); ++i) {
      show_progress(doing, i, tests.size());
      if (Status status = (this->*measure)(tests[i]); !status.ok() && !interrupted()) return status;
    }
    return ok_status();
  }

  NamedRoute& way(const std::string& from, const std::string& to) {
    const auto found = std::ranges::find_if(
        profile_.routes, [&](const NamedRoute& known) { return known.from == from && known.to == to; });
    CHECK(found != profile_.routes.end(), "a test between hosts without a ping-pong test");
    return *found;
  }

  Status alone(const PingPongTest& test) {
    ASSIGN_OR_RETURN(const MeasuredMessages measured, play(launch_, dir_, test, set_.eager_limit));
    const auto& [fit, sender] = measured;
    NamedRoute way{test.a, test.b, fit.eager, fit.rendezvous, {}, fit.largest_error, {}, {}};
    way.overheads.held = sender.held;
    way.overheads.handover = sender.handover;
    profile_.routes.push_back(way);
    if (test.a == test.b) return ok_status();
    std::swap(way.from, way.to);
    profile_.routes.push_back(std::move(way));
    return ok_status();
  }

  // A launch whose connections get into each other's way at their beginning says little of others: where both ways at
  // once seem clearly slower than one, further launches are asked, and the fastest counts.
  Status both_ways(const MessageTest& test) {
    constexpr int launches = 3, repeats = 5;
    constexpr double as_fast = 0.98;
    NamedRoute &there = way(test.a, test.b), &back = way(test.b, test.a);
    for (int launch = 0; launch < launches && !interrupted(); ++launch) {
      ASSIGN_OR_RETURN(const Played played, run_saved(launch_, dir_ + "/" + test.folder, {test.a, test.b}, repeats));
      bool clearly_slower = false;
      for (NamedRoute* way : {&there, &back}) {
        const double moving = played.makespan_s - way->rendezvous.latency.value();
        const auto rate = bytes_per_second(static_cast<double>(test.bytes) / std::max(moving, 1e-9));
        // Never more than alone: what is above that is noise.
        way->crossing = std::min(way->rendezvous.bandwidth, std::max(way->crossing, rate));
        clearly_slower |= way->crossing.value() < as_fast * way->rendezvous.bandwidth.value();
      }
      if (!clearly_slower) break;
    }
    return ok_status();
  }

  Status clear_to_send(const ClearToSendTest& test) {
    ASSIGN_OR_RETURN(way(test.a, test.b).clear_to_send_delay, measure_clear_to_send_delay(launch_, dir_, test));
    return ok_status();
  }

  Status late(const MessageTest& test) {
    ASSIGN_OR_RETURN(way(test.a, test.b).starts_early, measure_starts_early(launch_, dir_, test));
    return ok_status();
  }

  Status overheads(const BusyPair& pair) {
    ASSIGN_OR_RETURN(const BusyFigures figures, measure_overheads(launch_, dir_, pair));
    Overheads& overheads = way(pair.a, pair.b).overheads;
    overheads.sender = figures.sender;
    overheads.receiver = figures.receiver;
    computations_s_[{pair.a, pair.b}] = figures.computation_s;
    return ok_status();
  }

  Status busy(const MessageTest& test) {
    ASSIGN_OR_RETURN(way(test.a, test.b).overheads.busy, longer(test));
    return ok_status();
  }

  // What is longer than their handshakes.
  Status slowed(const MessageTest& test) {
    NamedRoute& way = this->way(test.a, test.b);
    ASSIGN_OR_RETURN(const double all, longer(test));
    const double moves_s = static_cast<double>(test.bytes) / test.messages / way.rendezvous.bandwidth.value();
    way.overheads.slowed = std::max(0.0, all - way.overheads.busy) / moves_s;
    return ok_status();
  }

  Result<double> longer(const MessageTest& test) {
    return measure_longer(launch_, dir_, test, way(test.a, test.b).rendezvous, computations_s_[{test.a, test.b}]);
  }

  const LaunchArguments& launch_;
  const NetworkTests& set_;
  const std::string& dir_;
  NetworkProfile profile_;
  std::map<std::pair<std::string, std::string>, double> computations_s_;  // by hosts: BusyFigures::computation_s
};

// Before minutes are spent: does every pair have its ranks, and is one host at most this machine?
Status check_hosts(const LaunchArguments& launch, const NetworkTests& set) {
  std::vector<std::string> hosts;
  const auto have = [&](const std::string& host, std::ptrdiff_t count) {
    while (std::ranges::count(hosts, host) < count) hosts.push_back(host);
  };
  for (const PingPongTest& test : set.tests) {
    have(test.a, test.a == test.b ? 2 : 1);
    have(test.b, 1);
  }
  for (const AlikePairs& alike : set.alike) {  // also those that are not measured: a profile is of all
    for (const RouteEnds& pair : alike.others) {
      have(pair.from, pair.from == pair.to ? 2 : 1);
      have(pair.to, 1);
    }
  }
  const auto ranks = ranks_on(launch, hosts);
  return ranks ? ok_status() : Status(ranks.error());
}

Status measure_network(const NetworkArguments& arguments) {
  Bytes eager_limit = bytes(arguments.launch.transport->eager_bytes);
  if (!arguments.eager_limit.empty()) {
    ASSIGN_OR_RETURN(eager_limit, size_option("--eager-limit", arguments.eager_limit));
  }
  RETURN_IF_ERROR(pairs_option("--pairs", arguments.pairs));
  RETURN_IF_ERROR(check(arguments.launch));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::beside(arguments.output));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string dir = folder.path() + "/set";
  ASSIGN_OR_RETURN(const NetworkTests set,
                   make_network_tests(arguments.nlsim, arguments.scenario, dir, eager_limit, arguments.pairs));
  RETURN_IF_ERROR(check_hosts(arguments.launch, set));
  ASSIGN_OR_RETURN(const NetworkProfile profile, Measurement(arguments.launch, set, dir).run());
  if (interrupted()) return ok_status();
  for (const std::string& warning : warnings_of(set.alike, profile)) fmt::print(stderr, "warning: {}\n", warning);
  RETURN_IF_ERROR(write_network_profile(arguments.output, profile));
  const bool all_early = std::ranges::all_of(profile.routes, &NamedRoute::starts_early);
  fmt::print("{}\n{}: messages up to {} start at once, larger ones {}\n", table_of(profile), arguments.output,
             to_string(profile.eager_limit), all_early ? "too" : "where the receiver is ready or the table says so");
  return ok_status();
}

}  // namespace

void add_network_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "network",
      "Measure messages between the hosts of a scenario: latency and bandwidth of small and large ones.\n"
      "  nlbench network scenarios/mine.yaml -o profiles/network.json --launcher 'mpirun --hostfile hosts' --on-hosts\n"
      "Then write in the scenario:  network: {profile: profiles/network.json}\n"
      "  nlbench network scenarios/mine.yaml -o profiles/grpc.json --transport grpc --workers b:7000,c:7000 --tls "
      "keys\n"
      "Do not start it with mpirun or srun: it starts one for each pair of hosts, with ranks that wait as in a run. A "
      "profile is for one\n"
      "transport. Pairs of hosts are alike if the scenario gives them the same links in the same order and the same "
      "devices (costs, isa,\n"
      "cores, slowdown): two of them are measured for all.");
  const auto a = std::make_shared<NetworkArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario")->required();
  command->add_option("-o,--output", a->output, "The measurements to write (.json)")->required();
  command->add_option("--eager-limit", a->eager_limit,
                      "Messages up to this size start without waiting for their receiver (default: that of the "
                      "transport: 65480B for Open MPI over TCP, 64KiB for gRPC)");
  command
      ->add_option(
          "--pairs", a->pairs,
          fmt::format("Of pairs that the scenario describes alike measure so many (default {}), the others get "
                      "their median;\nall: measure every pair",
                      usual_pairs))
      ->type_name("COUNT|all");
  add_launch_options(*command, a->launch);
  command->add_option("--nlsim", a->nlsim, "Path of nlsim (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts(mpirun_ends_within_s);
    code = end_command(measure_network(*a));
  });
}

}  // namespace nlsplit::inline tools
