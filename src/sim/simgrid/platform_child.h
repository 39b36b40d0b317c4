// Internal to the module: reading a platform with SimGrid, in a process that may die of it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline sim {

// Where the child is, in memory it shares with its parent: what died is then told.
struct ProbeStage {
  int from = -1, to = -1;  // hosts asked for, between which a route is being looked up; -1: still reading
};

// The answer as bytes: names of hosts, or links and routes (platform_answer.h). `hosts` empty: all names. `loops`: also
// the routes from each host to itself, of which SimGrid dies in zones that have no routes at all.
Result<std::string> probe_platform(const std::string& path, const std::vector<std::string>& hosts, bool loops,
                                   ProbeStage& stage);

}  // namespace nlsplit::inline sim
