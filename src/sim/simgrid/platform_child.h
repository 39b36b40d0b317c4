// Internal to the module: reading a platform with SimGrid, in a process that may die of it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline sim {

// The child's progress, in memory that it shares with its parent, for the message if it dies.
struct ProbeStage {
  int from = -1, to = -1;  // the hosts between which a route is being looked up; -1: still reading
};

// The answer as bytes: names of hosts, or links and routes (platform_answer.h). `hosts` empty: all names. `loops`: also
// the routes from each host to itself, of which SimGrid dies in zones that have no routes at all.
Result<std::string> probe_platform(const std::string& path, const std::vector<std::string>& hosts, bool loops,
                                   ProbeStage& stage);

}  // namespace nlsplit::inline sim
