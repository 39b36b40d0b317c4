#include "program/rank_hosts.h"

namespace nlsplit::inline program {

std::vector<std::string> rank_hosts(const Program& program, bool places) {
  std::vector<std::string> hosts;
  for (const DeviceProgram& device : program.devices) {
    const std::string& host = device.host;
    const std::string inner = "." + device.name;  // behind a bus: cost/cluster.h
    hosts.push_back(places || !host.ends_with(inner) ? host : host.substr(0, host.size() - inner.size()));
  }
  return hosts;
}

}  // namespace nlsplit::inline program
