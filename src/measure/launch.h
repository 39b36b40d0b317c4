// Starts `nlbench run` of a saved Program, by a launcher (base/launcher.h) or not, and waits for its answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/launcher.h"
#include "exec/transports/transports.h"
#include "measure/child.h"

namespace nlsplit::inline measure {

// From an interrupt on: its ranks end within a second, mpirun itself takes 1.1 s (Open MPI 4.1).
inline constexpr double mpirun_ends_within_s = 3;

struct LaunchArguments {
  std::string launcher = usual_launcher(), polling = "auto";
  const TransportKind* transport = &all_transports().front();
  bool on_hosts = false;  // also without it in a Slurm allocation that has all of the hosts
  // Of a transport of workers: "host:port", or "NAME=host:port" where the scenario has another name for the host.
  std::vector<std::string> workers = {};
  std::string credentials = {};
};

// Errors: --launcher is empty; a transport of workers without any, or workers for another one.
Status check(const LaunchArguments& arguments);

// The rank of each of these hosts (one that stands there twice gets two). Of workers: rank 0 is this machine, which is
// the host that has no worker, and the others are the workers. By srun those of a host come together, in the order in
// which hosts come first. Else 0, 1, …. Errors: too few workers on a host, several hosts that have none.
Result<std::vector<int>> ranks_on(const LaunchArguments& arguments, const std::vector<std::string>& hosts);

// `nlbench run DIR OPTIONS…` with a rank for each of `hosts`, in the order of ranks_on(hosts), which --turns name and
// which is theirs where those of one host stand together. Over workers all of them take part, and DIR is one plan's
// folder, or with --turns a set's. `looked`: called some times a
// second while it runs.
Result<ChildEnd> launch(const LaunchArguments& arguments, const std::string& dir, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& options, const std::function<void()>& looked = nullptr);

// "DOING: exit code 3: error: lost rank 1 on host b …", for an end with another code than 0. Of kind `lost` if a rank
// was, also if all that is known is that a signal ended one.
Error launch_error(const ChildEnd& end, const std::string& doing = "");

}  // namespace nlsplit::inline measure
