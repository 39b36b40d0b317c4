// Options of the commands that start ranks.
#pragma once

#include "measure/launch.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

// The option --transport.
void add_transport_option(CLI::App& command, const TransportKind*& transport);

// The options --workers and --tls, of the transport grpc.
void add_remote_options(CLI::App& command, Remote& remote);

// The option --polling: "auto", "spin" or "sleep".
void add_polling_option(CLI::App& command, std::string& polling);
Polling polling_of(const std::string& word);

// The options --hosts and --places, with which nlemulate asks a command for the hosts of its ranks. Users have `nlsim
// hostfile`.
struct HostsArguments {
  bool asked = false, places = false;
};
void add_hosts_options(CLI::App& command, HostsArguments& arguments);

// Options --launcher, --on-hosts, --transport, --workers, --tls, --polling. Three of them also from the environment,
// NLBENCH_LAUNCHER, NLBENCH_ON_HOSTS and NLBENCH_POLLING, so that who sets up a cluster can say how to start ranks on
// it.
void add_launch_options(CLI::App& command, LaunchArguments& arguments);

}  // namespace nlsplit::inline tools
