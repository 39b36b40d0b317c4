// nlemulate: a scenario's cluster as network namespaces of this machine, and a command in it. docs/emulation.md.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "emulate/sandbox.h"
#include "scenario/scenario.h"
#include "sim/simgrid/platform.h"
#include "tools/exit.h"
#include "tools/nlemulate_launch.h"

namespace {

using namespace nlsplit;
namespace fs = std::filesystem;

struct Arguments {
  std::string scenario;
  LaunchArguments launch;
  std::vector<std::string> cuts;
  double loss_percent = 0;
  bool loopback = false, quiet = false;
  std::string links = "switch";
};

// nlbench and the other programs beside this one need no path in front.
void find_programs_beside_us() {
  std::error_code failure;
  const std::string beside = fs::read_symlink("/proc/self/exe", failure).parent_path();
  const char* path = std::getenv("PATH");
  ::setenv("PATH", (beside + (path != nullptr ? std::string(":") + path : "")).c_str(), 1);
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof(mine), &mine) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mine)) cpus.push_back(cpu);
  }
  return cpus;
}

Status become(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return io_error(fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
}

Result<int> emulate(Arguments& arguments) {
  ASSIGN_OR_RETURN(const Scenario scenario,
                   read_scenario(arguments.scenario, {.need_profiles = false, .platforms = simgrid_platforms()}));
  ASSIGN_OR_RETURN(EmulatedNetwork network, emulated_network(scenario.cluster));
  for (const std::string& text : arguments.cuts) {
    ASSIGN_OR_RETURN(Cut cut, parse_cut(scenario.cluster, text));
    network.cuts.push_back(std::move(cut));
  }
  network.loss = arguments.loss_percent / 100;
  if (arguments.loopback && !network.cuts.empty()) return invalid_input("--loopback has no links to --cut");
  if (arguments.loopback && network.loss > 0) return invalid_input("--loopback has no links that could have a --loss");
  if (arguments.links == "kernel") {
    if (arguments.loopback) return invalid_input("--loopback has no --links");
    if (!network.cuts.empty() || network.loss > 0)
      return invalid_input("--links kernel can neither --cut links nor give them a --loss");
    ASSIGN_OR_RETURN(network.kernel_links, kernel_links(scenario.cluster, network));
  }
  share_out(usable_cpus(), network);
  if (!arguments.loopback) RETURN_IF_ERROR(can_sandbox());
  if (arguments.launch.command.empty()) {
    if (arguments.loopback || !arguments.launch.ranks_on.empty()) return invalid_input("no COMMAND: it follows --");
    fmt::print("this machine can emulate it: {} hosts\n", network.places.size());
    return 0;
  }
  find_programs_beside_us();
  if (arguments.launch.ranks_on.empty() && starts_ranks(arguments.launch.command)) {
    ASSIGN_OR_RETURN(arguments.launch.ranks_on, hosts_of_ranks(arguments.launch.command));
  }
  if (arguments.loopback) return become(loopback_command(scenario.cluster, arguments.launch)).error();
  ASSIGN_OR_RETURN(SandboxOptions options, launch(scenario.cluster, network, arguments.launch));
  options.quiet = arguments.quiet;
  return run_sandbox(network, options);
}

int emulate_command(Arguments& arguments) {
  const Result<int> code = emulate(arguments);
  return code.ok() ? *code : report(code.error());
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

// The same program under another name: sandbox.h.
int on_command(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: on HOST COMMAND...   inside an emulated cluster: runs the command on that host\n", stderr);
    return 2;
  }
  return report(run_on_place(argv[1], {argv + 2, argv + argc}));
}

}  // namespace

int main(int argc, char** argv) {
  begin_program();
  if (fs::path(argv[0]).filename() == "on") return on_command(argc, argv);
  CLI::App app(
      "Runs a command on a scenario's cluster, emulated on this machine: each host a network namespace, with the "
      "links' "
      "bandwidths\nand latencies between them. Nothing is left behind, however it ends.\n\n"
      "  emulate_cluster S.yaml -- nlbench run S.yaml --plan 1      over MPI, each rank on its device's host\n"
      "                                                             (also: session, train, generate, serve)\n"
      "  emulate_cluster S.yaml --ranks-on a,b -- ./my_mpi_program  any MPI program, a rank for each name\n"
      "  emulate_cluster S.yaml -- ping -c 3 b                      one command, on the first device's host\n"
      "  emulate_cluster S.yaml --on b -- bash                      a shell on host b; `on a COMMAND` runs one on a\n"
      "  emulate_cluster S.yaml                                     only says whether this machine can",
      "emulate_cluster");
  Arguments arguments;
  app.add_option("SCENARIO", arguments.scenario, "The cluster: its hosts, links and eager_limit")
      ->type_name("FILE")
      ->required();
  std::string ranks_on;
  app.add_option("--ranks-on", ranks_on, "COMMAND is an MPI program; hosts of its ranks, in order")
      ->type_name("HOST,...");
  app.add_option("--on", arguments.launch.on,
                 "Host where COMMAND, or its mpirun, runs (default: rank 0's, or the first device's)")
      ->type_name("HOST");
  app.add_option("--links", arguments.links,
                 "switch (default): links as the simulator models them. kernel: Linux's token buckets with the links' "
                 "bandwidths,\nand no latency but their own")
      ->check(CLI::IsMember({"switch", "kernel"}));
  app.add_flag("--loopback", arguments.loopback,
               "No emulation: the same over TCP on this machine's loopback, which shapes nothing");
  app.add_option("--cut", arguments.cuts,
                 "The link between two hosts (or a host and a switch) carries nothing from TIME after COMMAND's start "
                 "on:\na,b@3s; a>b@3s: only what goes from a to b. May be given several times")
      ->type_name("HOST,HOST@TIME")
      ->allow_extra_args(false);
  app.add_option("--loss", arguments.loss_percent,
                 "Percentage of the packets between hosts that are thrown away, chosen at random (default: 0)")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  app.add_flag("--quiet", arguments.quiet, "No line on stderr about what the network did");
  app.footer(
      "Exit codes: COMMAND's; 128 + n when signal n ended it; 2 bad input, or this machine cannot. Needs root, or user "
      "namespaces.\ndocs/emulation.md says more.");
  app.set_version_flag("--version", "nlemulate " NLS_VERSION);
  int code = 0;
  app.callback([&] {
    arguments.launch.ranks_on = split_names(ranks_on);
    code = emulate_command(arguments);
  });
  // What follows "--" is not ours to parse.
  char** const command = std::find(argv + 1, argv + argc, std::string_view("--"));
  if (command != argv + argc) arguments.launch.command.assign(command + 1, argv + argc);
  return parse_and_run(app, static_cast<int>(command - argv), argv, code);
}
