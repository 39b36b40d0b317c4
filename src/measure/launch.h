// Starts `nlbench run` of a saved Program, under mpirun or not, and waits for its answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/transports/transports.h"
#include "measure/child.h"

namespace nlsplit::inline measure {

// From an interrupt on: its ranks end within a second, mpirun itself takes 1.1 s (Open MPI 4.1).
inline constexpr double mpirun_ends_within_s = 3;

struct LaunchArguments {
  std::string mpirun = "mpirun --oversubscribe", polling = "auto";
  const TransportKind* transport = &all_transports().front();
  bool on_hosts = false;
};

Status check(const LaunchArguments& arguments);

// `nlbench run DIR OPTIONS…` with a rank for each of `hosts`, in their order. `looked`: called some times a second
// while it runs.
Result<ChildEnd> launch(const LaunchArguments& arguments, const std::string& dir, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& options, const std::function<void()>& looked = nullptr);

// "DOING: exit code 3: error: lost rank 1 on host b …", for an end with another code than 0. Of kind `lost` if a rank
// was, also if all that is known is that a signal ended one.
Error launch_error(const ChildEnd& end, const std::string& doing = "");

}  // namespace nlsplit::inline measure
