#include "tools/nlbench_conditions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

namespace nlsplit::inline tools {

Conditions conditions_of(const Program& program, const RanOn& ran_on, const Clocks& clocks) {
  Conditions found;
  const size_t devices = program.devices.size();
  for (size_t d = 0; d < devices && d < ran_on.stands_in.size(); ++d) {
    if (ran_on.stands_in[d] != 0) found.stand_ins.push_back(program.devices[d].name);
  }
  if (ran_on.machine.size() != devices) return found;
  for (size_t first = 0; first < devices && found.one_machine.empty(); ++first) {
    std::vector<std::string> here;
    std::set<std::string> hosts;
    for (size_t d = 0; d < devices; ++d) {
      if (ran_on.machine[d] != static_cast<int>(first)) continue;
      here.push_back(program.devices[d].name);
      hosts.insert(program.devices[d].host);
    }
    if (hosts.size() > 1) found.one_machine = std::move(here);
  }
  found.own_compute = !found.one_machine.empty() && clocks.empty();
  return found;
}

std::string conditions_text(const Conditions& conditions) {
  std::string text;
  if (!conditions.stand_ins.empty()) {
    text += fmt::format("note        the CPU computed in place of the GPU of {}: these times are not the scenario's\n",
                        fmt::join(conditions.stand_ins, ", "));
  }
  if (!conditions.one_machine.empty()) {
    text += fmt::format("note        {} ran on one machine: their messages did not pass the scenario's links{}\n",
                        fmt::join(conditions.one_machine, ", "),
                        conditions.own_compute ? ", and they computed at this machine's speed" : "");
  }
  return text;
}

nlohmann::json conditions_json(const Conditions& conditions) {
  return {{"cpu_in_place_of_gpu", conditions.stand_ins}, {"on_one_machine", conditions.one_machine}};
}

}  // namespace nlsplit::inline tools
