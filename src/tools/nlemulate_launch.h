// What nlemulate starts: the user's command as it is, or mpirun with it, one rank a device in the right places.
#pragma once

#include <string>
#include <vector>

#include "cost/cluster.h"
#include "emulate/sandbox.h"

namespace nlsplit::inline tools {

struct LaunchArguments {
  std::vector<std::string> command;
  std::vector<std::string> ranks_on;  // hosts of an MPI program's ranks; empty: no MPI program, or nlbench, who knows
  std::string on;                     // host where the command runs; empty: that of rank 0, or the first device's
};

// Is the command one of nlbench's that run as several ranks (`nlbench run …`, `train`, …)? Then its ranks' hosts are
// asked from itself: `… --hosts`. None: it needs no mpirun.
bool starts_ranks(const std::vector<std::string>& command);
Result<std::vector<std::string>> hosts_of_ranks(const std::vector<std::string>& command);

// Open MPI's settings for an emulated network, as environment variables: they also serve an mpirun that the command
// itself starts.
Result<SandboxOptions> launch(const Cluster& cluster, const EmulatedNetwork& network, const LaunchArguments& arguments);

// The same command without an emulated network: ranks over TCP on this machine's loopback.
std::vector<std::string> loopback_command(const Cluster& cluster, const LaunchArguments& arguments);

}  // namespace nlsplit::inline tools
