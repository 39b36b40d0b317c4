#include "tools/launch_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace nlsplit::inline tools {

void add_transport_option(CLI::App& command, const TransportKind*& transport) {
  std::vector<std::string> names;
  for (const TransportKind& kind : all_transports()) names.emplace_back(kind.name);
  command
      .add_option_function<std::string>(
          "--transport", [&transport](const std::string& name) { transport = find_transport(name); },
          about_transports())
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
}

void add_remote_options(CLI::App& command, Remote& remote) {
  command
      .add_option("--workers", remote.workers,
                  "With --transport grpc: where ranks 1 … wait (nlbench worker), HOST:PORT,HOST:PORT; this process is "
                  "rank 0")
      ->delimiter(',')
      ->type_name("HOST:PORT");
  command
      .add_option(
          "--tls", remote.credentials,
          "With --workers: the folder of certificates and secret (nlbench certificates); without it only workers "
          "on this machine")
      ->type_name("DIR");
}

void add_polling_option(CLI::App& command, std::string& polling) {
  command
      .add_option("--polling", polling,
                  "How a rank waits for messages. sleep: 50 to 500 us between looks; spin: a core of its own; auto: "
                  "spin if there\n"
                  "are two cores a rank (default)")
      ->check(CLI::IsMember({"auto", "spin", "sleep"}));
}

Polling polling_of(const std::string& word) {
  if (word == "spin") return Polling::spin;
  return word == "sleep" ? Polling::sleep : Polling::automatic;
}

void add_hosts_options(CLI::App& command, HostsArguments& arguments) {
  const std::string hidden;
  command.add_flag("--hosts", arguments.asked)->group(hidden);
  command.add_flag("--places", arguments.places)->group(hidden);
}

void add_launch_options(CLI::App& command, LaunchArguments& arguments) {
  command
      .add_option("--launcher", arguments.launcher,
                  fmt::format("What starts the ranks, mpirun or srun, with its options (default here \"{}\")",
                              arguments.launcher))
      ->type_name("COMMAND")
      ->envname("NLBENCH_LAUNCHER");
  command
      .add_flag("--on-hosts", arguments.on_hosts,
                "Start each device's rank on the scenario's host (default: in a Slurm allocation of these hosts; else "
                "the launcher chooses)")
      ->envname("NLBENCH_ON_HOSTS");
  add_transport_option(command, arguments.transport);
  command
      .add_option(
          "--workers", arguments.workers,
          "With --transport grpc: where the ranks of the other hosts wait (nlbench worker), HOST:PORT,HOST:PORT, "
          "or NAME=HOST:PORT\nwhere the scenario calls the host otherwise; the host without a worker is this "
          "machine")
      ->delimiter(',')
      ->type_name("[NAME=]HOST:PORT");
  command
      .add_option("--tls", arguments.credentials,
                  "With --workers: the folder of certificates and secret (nlbench certificates); without it only "
                  "workers on this machine")
      ->type_name("DIR");
  command
      .add_option("--polling", arguments.polling,
                  "How a rank waits for messages: sleep, spin or auto, as with nlbench run (default auto)")
      ->check(CLI::IsMember({"auto", "spin", "sleep"}))
      ->envname("NLBENCH_POLLING");
}

}  // namespace nlsplit::inline tools
